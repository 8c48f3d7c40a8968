// Rows that refuse only when they plan, through the real server: a request that leaves the choice
// to it gets the next row, and the response names it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/e2e/held_request.h"
#include "tests/e2e/raw_call.h"
#include "tests/e2e/server_process.h"
#include "tests/e2e/specs_request.h"
#include "tests/e2e/stream_call.h"

namespace warpcall::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

v1::ExecuteRequest PickyRequest(int64_t elements, const std::string& implementation) {
  v1::ExecuteRequest request = Request("picky", {FloatTensor(elements)});
  request.set_implementation(implementation);
  (*request.mutable_attributes())["elements_max"].set_int_value(100);
  return request;
}

const std::vector<std::string> kHere = {"--devices=cpu"};

class RefusingRowTest : public ::testing::TestWithParam<std::vector<std::string>> {
 protected:
  // Returns the variant that ran and checks that it got the values as sent, or the error.
  std::string Runs(int64_t elements, const std::string& implementation = "") {
    const v1::ExecuteRequest request = PickyRequest(elements, implementation);
    const Reply reply = Execute(channel_, request);
    if (!reply.status.ok()) return reply.CodeAndMessage();
    EXPECT_EQ(reply.response.outputs(0).data(), request.inputs(0).data());
    return reply.response.launch().variant();
  }
  double Choices(const std::string& implementation) {
    return server_.Sum("warpcall_auto_choices_total",
                       {absl::StrCat("implementation=\"", implementation, "\"")});
  }
  double Requests(const std::string& implementation) {
    return server_.Sum("warpcall_requests_total",
                       {absl::StrCat("implementation=\"", implementation, "\"")});
  }

  ServerProcess server_{FlagsForHeld(GetParam())};
  std::shared_ptr<grpc::Channel> channel_ = Connect(server_.address());
};

TEST_P(RefusingRowTest, WhatTheServerChoosesIsServedByTheNextThatTakesIt) {
  EXPECT_EQ(Runs(100), "refusing");
  for (int i = 0; i < 3; ++i) EXPECT_EQ(Runs(101), "taking");
  EXPECT_EQ(Runs(101, "auto"), "taking");
  EXPECT_EQ(Choices("library"), 1);
  EXPECT_EQ(Choices("reference"), 4);
  EXPECT_EQ(Requests("reference"), 4);
  EXPECT_TRUE(server_.Logs("implementation=library variant=refusing"));
}

TEST_P(RefusingRowTest, AFamilyIsKeptAndANamedRowTellsItsReason) {
  EXPECT_EQ(Runs(101, "reference"), "taking");
  const std::string none = Runs(102, "library");
  EXPECT_THAT(none, StartsWith("12: "));  // UNIMPLEMENTED
  EXPECT_THAT(none, HasSubstr("refusing: there is no way to copy 102 elements"));
  EXPECT_THAT(none, HasSubstr("not_compiling: error: expected a kernel"));
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(Runs(101, "refusing"), "12: there is no way to copy 101 elements");
    EXPECT_EQ(Runs(101, "not_compiling"), "13: error: expected a kernel");
    EXPECT_EQ(Runs(101), "taking");
  }
}

// Three copies in a row, the second of which its first rows refuse.
v1::ExecuteGraphRequest PickyGraph(const std::string& implementation = "") {
  v1::ExecuteGraphRequest graph;
  graph.add_inputs()->set_name("x");
  *graph.mutable_inputs(0)->mutable_tensor() = FloatTensor(int64_t{101});
  for (const char* const name : {"a", "b", "c"}) {
    v1::GraphStep& step = *graph.add_steps();
    step.set_name(name);
    step.set_kernel("picky");
    step.add_inputs(std::string(name) == "a" ? "x"
                                             : std::string(1, static_cast<char>(name[0] - 1)));
    (*step.mutable_attributes())["elements_max"].set_int_value(step.name() == "b" ? 100 : 0);
  }
  graph.mutable_steps(1)->set_implementation(implementation);
  graph.add_outputs()->set_name("c");
  return graph;
}

TEST_P(RefusingRowTest, SoIsAStepOfAGraph) {
  const auto stub = v1::KernelService::NewStub(channel_);
  for (int i = 0; i < 3; ++i) {
    grpc::ClientContext context;
    v1::ExecuteGraphResponse response;
    const grpc::Status status = stub->ExecuteGraph(&context, PickyGraph(), &response);
    ASSERT_TRUE(status.ok()) << status.error_message();
    EXPECT_EQ(response.outputs(0).data(), PickyGraph().inputs(0).tensor().data());
    std::vector<std::string> variants;
    for (const v1::GraphStepResult& step : response.steps())
      variants.push_back(step.launch().variant());
    EXPECT_EQ(variants, (std::vector<std::string>{"refusing", "taking", "refusing"}));
  }
  EXPECT_EQ(Runs(101), "taking");  // known from the graph
  grpc::ClientContext context;
  v1::ExecuteGraphResponse response;
  const grpc::Status named = stub->ExecuteGraph(&context, PickyGraph("refusing"), &response);
  EXPECT_EQ(named.error_code(), grpc::StatusCode::UNIMPLEMENTED);
  EXPECT_EQ(named.error_message(), "step \"b\": there is no way to copy 101 elements");
}

TEST_P(RefusingRowTest, SoIsEveryWindowOfAStream) {
  const auto elements = static_cast<int64_t>(10 * kMib);
  v1::ExecuteStreamRequest header = Header("picky", {elements});
  (*header.mutable_header()->mutable_attributes())["elements_max"].set_int_value(100);
  const std::string data = FloatTensor(elements).data();
  for (int i = 0; i < 2; ++i) {
    Stream stream(server_);
    Answer answer;
    std::thread sender([&] {
      stream.Send(header);
      stream.SendChunks(data, 0, data.size(), 4 * kMib);
    });
    EXPECT_TRUE(stream.Receive(&answer));
    sender.join();
    stream.CloseInput();
    EXPECT_TRUE(stream.Finish().ok());
    EXPECT_EQ(answer.done.launch().variant(), "taking");
    EXPECT_TRUE(answer.output == data);
  }
  EXPECT_EQ(Requests("reference"), 2);
}

TEST_P(RefusingRowTest, WhoIsRefusedByAllIsRefusedByNoneOfThem) {
  for (int i = 0; i < 2; ++i) EXPECT_THAT(Runs(101, "library"), StartsWith("12: "));
  EXPECT_EQ(Requests("library"), 0);
}

// Which look before anything of the kind has run.
TEST_P(RefusingRowTest, DescribeAndProfileTellOfTheRowThatWouldRun) {
  if (GetParam() != kHere) GTEST_SKIP() << "their processes know one CPU alone";
  const auto stub = v1::KernelService::NewStub(channel_);
  const auto described = [&](const std::string& implementation) {
    v1::DescribeRequest request = DescribeOf("picky", {{101}});
    request.set_implementation(implementation);
    (*request.mutable_attributes())["elements_max"].set_int_value(100);
    grpc::ClientContext context;
    v1::DescribeResponse response;
    const grpc::Status status = stub->Describe(&context, request, &response);
    return status.ok() ? response.launch().variant() : status.error_message();
  };
  const auto profiled_by = [&](v1::ProfileRequest request) {
    request.set_iterations(1);
    grpc::ClientContext context;
    v1::ProfileResponse response;
    const grpc::Status status = stub->Profile(&context, request, &response);
    return status.ok() ? response.variant() : status.error_message();
  };
  const auto profiled = [&](const std::string& implementation) {
    v1::ProfileRequest request;
    *request.mutable_input_specs() = DescribeOf("picky", {{101}}).inputs();
    *request.mutable_request() = PickyRequest(0, implementation);
    request.mutable_request()->clear_inputs();
    return profiled_by(request);
  };
  const std::string refused = "there is no way to copy 101 elements";
  const std::string uncompiled = "error: expected a kernel";
  for (const auto& asked : {std::function<std::string(const std::string&)>(described),
                            std::function<std::string(const std::string&)>(profiled)}) {
    EXPECT_EQ(asked(""), "taking");
    EXPECT_EQ(asked("reference"), "taking");
    EXPECT_EQ(asked("refusing"), refused);
    EXPECT_EQ(asked("not_compiling"), uncompiled);
    EXPECT_EQ(asked("library"),
              absl::StrCat("no implementation of picky takes float32[101] on cpu: refusing: ",
                           refused, "; not_compiling: ", uncompiled));
  }
  v1::ProfileRequest large;  // which is read when its turn has come
  *large.mutable_request() = PickyRequest(100'000, "");
  EXPECT_EQ(profiled_by(large), "taking");
}

INSTANTIATE_TEST_SUITE_P(HereAndInWorkers, RefusingRowTest,
                         ::testing::Values(kHere,
                                           std::vector<std::string>{"--test_cpu_workers=2"}));

}  // namespace
}  // namespace warpcall::testing
