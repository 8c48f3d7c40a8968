// Rows that refuse only when they are asked how they would do it, through the real server: who left
// the choice to it is served by the next, and told by which.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/e2e/held_request.h"
#include "tests/e2e/raw_call.h"
#include "tests/e2e/server_process.h"
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

class RefusingRowTest : public ::testing::TestWithParam<std::vector<std::string>> {
 protected:
  // Who ran it, with its values as they were sent; or why nobody did.
  std::string Runs(int64_t elements, const std::string& implementation = "") {
    const v1::ExecuteRequest request = PickyRequest(elements, implementation);
    const Reply reply = Execute(channel_, request);
    if (!reply.status.ok()) return reply.CodeAndMessage();
    EXPECT_EQ(reply.response.outputs(0).data(), request.inputs(0).data());
    return reply.response.implementation();
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
  EXPECT_EQ(Choices("refusing"), 1);
  EXPECT_EQ(Choices("not_compiling"), 0);
  EXPECT_EQ(Choices("taking"), 4);
  EXPECT_EQ(Requests("taking"), 4);
  EXPECT_THAT(server_.log(), HasSubstr("implementation=refusing"));
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
    EXPECT_EQ(answer.done.implementation(), "taking");
    EXPECT_TRUE(answer.output == data);
  }
  EXPECT_EQ(Requests("taking"), 2);
}

INSTANTIATE_TEST_SUITE_P(HereAndInWorkers, RefusingRowTest,
                         ::testing::Values(std::vector<std::string>{"--devices=cpu"},
                                           std::vector<std::string>{"--test_cpu_workers=2"}));

}  // namespace
}  // namespace warpcall::testing
