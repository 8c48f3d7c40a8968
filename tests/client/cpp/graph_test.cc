// ExecuteGraph, ProfileGraph and DescribeGraph by the C++ client, against a server whose answers
// the test decides.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/client/fake_server.h"
#include "tests/client/patience.h"
#include "warpcall/client.h"

namespace warpcall::client {
namespace {

using testing::EchoGraph;
using ::testing::ElementsAre;
using testing::FakeAnswer;
using testing::FakeServer;
using ::testing::HasSubstr;
using testing::kPatience;

class GraphTest : public ::testing::Test {
 protected:
  GraphTest() {
    server_.AnswerExecuteGraph(
        [this](const v1::ExecuteGraphRequest& request, v1::ExecuteGraphResponse* response) {
          requests_.push_back(request);
          if (Loses(request)) return Lost();
          if (refusals_ > 0) {
            --refusals_;
            return FakeAnswer{absl::UnavailableError("busy"), {}};
          }
          return EchoGraph(request, response);
        });
    server_.AnswerProfile([this](const v1::ProfileRequest& request, v1::ProfileResponse* response) {
      profiles_.push_back(request);
      if (Loses(request.graph())) return Lost();
      testing::Merge("device: 'cpu' iterations: 3 rows { name: 'gelu' step: 'y' }", response);
      return FakeAnswer{};
    });
    server_.AnswerDescribe(
        [this](const v1::DescribeRequest& request, v1::DescribeResponse* response) {
          descriptions_.push_back(request);
          if (Loses(request.graph())) return Lost();
          testing::Merge(
              R"(device: 'cpu' intermediate_bytes: 4096
             steps { name: 'h' kernel: 'linear' implementation: 'onednn' result_bytes: 64
                     launch { flops: 400 variant: 'fast' } is_intermediate: true fuses_with: 'y'
                     fused_saves_bytes: 128 }
             steps { name: 'y' })",
              response);
          return FakeAnswer{};
        });
    server_.AnswerPut([this](const std::vector<v1::PutRequest>&, v1::PutResponse* response) {
      response->set_handle(absl::StrCat("handle-", ++puts_));
      response->set_device("cpu");
      return FakeAnswer{};
    });
  }

  bool Loses(const v1::ExecuteGraphRequest& graph) const {
    return std::any_of(
        graph.inputs().begin(), graph.inputs().end(),
        [&](const v1::GraphInput& input) { return input.tensor().handle() == lost_; });
  }
  FakeAnswer Lost() const { return {absl::NotFoundError("lost"), {}, lost_ + " " + why_}; }

  GraphRequest Request(Tensor weight) const {
    return {.inputs = {{"x", x_}, {"w", std::move(weight)}},
            .steps = {{.name = "h", .kernel = "linear", .inputs = {"x", "w"}},
                      {.name = "y", .kernel = "gelu", .implementation = "cpu", .inputs = {"h"}}},
            .outputs = {{.name = "y"}, {.name = "h", .keep = true}},
            .timeout = kPatience};
  }

  const Tensor x_ = Tensor::FromFloats({2, 3}, {1, 2, 3, 4, 5, 6});
  // Used by one call at a time.
  std::vector<v1::ExecuteGraphRequest> requests_;
  std::vector<v1::ProfileRequest> profiles_;
  std::vector<v1::DescribeRequest> descriptions_;
  std::string lost_ = "none";
  std::string why_ = "expired";
  int refusals_ = 0;
  int puts_ = 0;
  FakeServer server_{testing::EchoInputs};
  Client client_{server_.address(), {.sleep = [](absl::Duration) {}}};
};

TEST_F(GraphTest, ReturnsOutputsStepsAndTimes) {
  GraphRequest request = Request(Tensor::FromFloats({1}, {7}));
  request.step_times = true;
  request.request_id = "mine";
  request.traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
  const auto response = client_.ExecuteGraph(request);
  ASSERT_TRUE(response.ok()) << response.status();
  ASSERT_EQ(response->outputs.size(), 2u);
  EXPECT_THAT(response->outputs[0].ToFloats(), ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_EQ(response->outputs[1].handle(), "kept-h");
  EXPECT_THAT(response->outputs[1].shape(), ElementsAre(2, 3));
  ASSERT_EQ(response->steps.size(), 2u);
  EXPECT_EQ(response->steps[0].name, "h");
  EXPECT_EQ(response->steps[0].implementation, "chosen");
  EXPECT_EQ(response->steps[1].implementation, "cpu");
  EXPECT_EQ(response->steps[1].kernel_ns, 1500);
  EXPECT_EQ(response->steps[1].launch.flops, 400);
  EXPECT_EQ(response->steps[1].launch.variant, "fast");
  EXPECT_EQ(response->device, "cpu");
  EXPECT_EQ(response->timing.kernel_ns, 4000);
  EXPECT_EQ(response->timing.total_ns, 6000);
  EXPECT_EQ(response->request_id, "mine");
  EXPECT_EQ(response->resident_bytes, 24);
  EXPECT_EQ(response->intermediate_bytes, 4096);
  EXPECT_TRUE(response->replayed);
  EXPECT_EQ(response->attempts, 1);
  EXPECT_GT(response->wall, absl::ZeroDuration());
  EXPECT_THAT(server_.traces(), ElementsAre(request.traceparent));
  ASSERT_EQ(server_.timeouts().size(), 1u);
  EXPECT_LT(server_.timeouts()[0], 2 * kPatience);  // gRPC rounds it
}

TEST_F(GraphTest, IsTriedAgainAsExecute) {
  refusals_ = 2;
  const auto response = client_.ExecuteGraph(Request(x_));
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_EQ(response->attempts, 3);
  EXPECT_EQ(requests_.size(), 3u);
}

TEST_F(GraphTest, PutsALostTensorAgainOnce) {
  const auto weight = client_.Put(Tensor::FromFloats({3}, {1, 2, 3}));
  ASSERT_TRUE(weight.ok()) << weight.status();
  EXPECT_EQ(weight->tensor.handle(), "handle-1");
  lost_ = "handle-1";
  const auto response = client_.ExecuteGraph(Request(weight->tensor));
  ASSERT_TRUE(response.ok()) << response.status();
  ASSERT_EQ(requests_.size(), 2u);
  EXPECT_EQ(requests_[0].inputs(1).tensor().handle(), "handle-1");
  EXPECT_EQ(requests_[1].inputs(1).tensor().handle(), "handle-2");
  EXPECT_EQ(weight->tensor.handle(), "handle-2");
  // Not twice a minute, and not what was freed.
  lost_ = "handle-2";
  EXPECT_TRUE(absl::IsNotFound(client_.ExecuteGraph(Request(weight->tensor)).status()));
  const auto other = client_.Put(Tensor::FromFloats({3}, {1, 2, 3}));
  ASSERT_TRUE(other.ok()) << other.status();
  lost_ = other->tensor.handle();
  why_ = "freed";
  const auto refused = client_.ExecuteGraph(Request(other->tensor));
  EXPECT_TRUE(absl::IsNotFound(refused.status()));
  ASSERT_EQ(LostHandles(refused.status()).size(), 1u);
  EXPECT_EQ(LostHandles(refused.status())[0].why, "freed");
  EXPECT_EQ(puts_, 3);
}

TEST_F(GraphTest, BorrowedBytesAreReadUntilItReturns) {
  const std::vector<char> bytes(size_t{3} << 20, 'x');
  const Tensor borrowed = Tensor::Borrow(
      DataType::kFloat32, {static_cast<int64_t>(bytes.size() / sizeof(float))}, bytes);
  const auto response =
      client_.ExecuteGraph({.inputs = {{"x", borrowed}},
                            .steps = {{.name = "y", .kernel = "gelu", .inputs = {"x"}}},
                            .outputs = {{.name = "y"}}});
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_EQ(response->outputs[0].data(), absl::MakeConstSpan(bytes));
}

TEST_F(GraphTest, WrongOptionsEndItBeforeItIsSent) {
  GraphRequest request = Request(x_);
  request.traceparent = "x";
  EXPECT_TRUE(absl::IsInvalidArgument(client_.ExecuteGraph(request).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(client_.ProfileGraph({.graph = request}).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(client_.DescribeGraph(request).status()));
  Cancellation cancellation;
  cancellation.Cancel();
  request = Request(x_);
  request.cancellation = &cancellation;
  EXPECT_TRUE(absl::IsCancelled(client_.ExecuteGraph(request).status()));
  EXPECT_TRUE(absl::IsCancelled(client_.ProfileGraph({.graph = request}).status()));
  EXPECT_TRUE(absl::IsCancelled(client_.DescribeGraph(request).status()));
  EXPECT_TRUE(requests_.empty());
  EXPECT_TRUE(profiles_.empty());
  EXPECT_TRUE(descriptions_.empty());
}

// The graph of both, but for its inputs.
constexpr char kInspected[] =
    " steps { name: \"h\" kernel: \"linear\" inputs: \"x\" inputs: \"w\" }"
    " steps { name: \"y\" kernel: \"gelu\" implementation: \"cpu\" inputs: \"h\" }"
    " outputs { name: \"y\" } outputs { name: \"h\" } }";

TEST_F(GraphTest, ProfileSendsTheInputsAndKeepsNothing) {
  const Tensor lent = Tensor::Borrow(DataType::kBFloat16, {2}, {"lent", 4});
  GraphRequest request = Request(Tensor::FromHandle("0a"));
  request.inputs[0].tensor = lent;
  request.outputs[1].ttl = absl::Seconds(3);
  request.outputs[1].label = "hidden";
  const auto report = client_.ProfileGraph({.graph = request, .iterations = 7, .trace = true});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->rows(0).step(), "y");
  ASSERT_EQ(profiles_.size(), 1u);
  EXPECT_EQ(testing::Text(profiles_[0]),
            absl::StrCat("iterations: 7 trace: true graph {"
                         " inputs { name: \"x\" tensor { data_type: DATA_TYPE_BFLOAT16 shape: 2"
                         " data: \"lent\" } } inputs { name: \"w\" tensor { handle: \"0a\" } }",
                         kInspected));
  ASSERT_EQ(server_.timeouts().size(), 1u);
  EXPECT_LT(server_.timeouts()[0], 2 * kPatience);
}

TEST_F(GraphTest, DescribeSendsNoDataAndNeedsNone) {
  GraphRequest request = Request(Tensor(DataType::kFloat16, {1 << 20, 1 << 20}, {}, nullptr));
  const auto description = client_.DescribeGraph(request);
  ASSERT_TRUE(description.ok()) << description.status();
  ASSERT_EQ(descriptions_.size(), 1u);
  EXPECT_EQ(testing::Text(descriptions_[0]),
            absl::StrCat("graph { inputs { name: \"x\" tensor { data_type: DATA_TYPE_FLOAT32"
                         " shape: 2 shape: 3 } } inputs { name: \"w\" tensor {"
                         " data_type: DATA_TYPE_FLOAT16 shape: 1048576 shape: 1048576 } }",
                         kInspected));
  EXPECT_EQ(description->intermediate_bytes(), 4096);
  ASSERT_EQ(description->steps_size(), 2);
  const DescribedStep& step = description->steps(0);
  EXPECT_EQ(step.implementation(), "onednn");
  EXPECT_EQ(step.launch().variant(), "fast");
  EXPECT_EQ(step.result_bytes(), 64);
  EXPECT_TRUE(step.is_intermediate());
  EXPECT_EQ(step.fuses_with(), "y");
  EXPECT_EQ(step.fused_saves_bytes(), 128);
}

TEST_F(GraphTest, InspectionsPutALostTensorAgainOnce) {
  const auto weight = client_.Put(Tensor::FromFloats({3}, {1, 2, 3}));
  const auto other = client_.Put(Tensor::FromFloats({3}, {1, 2, 3}));
  lost_ = weight->tensor.handle();
  const auto report = client_.ProfileGraph({.graph = Request(weight->tensor)});
  ASSERT_TRUE(report.ok()) << report.status();
  ASSERT_EQ(profiles_.size(), 2u);
  EXPECT_EQ(profiles_[1].graph().inputs(1).tensor().handle(), "handle-3");
  lost_ = other->tensor.handle();
  const auto description = client_.DescribeGraph(Request(other->tensor));
  ASSERT_TRUE(description.ok()) << description.status();
  ASSERT_EQ(descriptions_.size(), 2u);
  EXPECT_EQ(descriptions_[1].graph().inputs(1).tensor().handle(), "handle-4");
  lost_ = "handle-4";
  EXPECT_TRUE(absl::IsNotFound(client_.DescribeGraph(Request(other->tensor)).status()));
  EXPECT_EQ(puts_, 4);
}

TEST(OldServerGraphTest, SaysThatTheServerIsOlder) {
  FakeServer server(testing::EchoInputs);
  Client client(server.address());
  const absl::Status status = client.ExecuteGraph({}).status();
  EXPECT_TRUE(absl::IsUnimplemented(status));
  EXPECT_THAT(status.message(), HasSubstr("older than this client"));
}

TEST(OldServerGraphTest, SaysThatItSeesAKernelInPlaceOfAGraph) {
  FakeServer server(testing::EchoInputs);
  std::string message = "kernel \"\" is unknown; available: gelu";
  server.AnswerProfile([&](const v1::ProfileRequest&, v1::ProfileResponse*) {
    return FakeAnswer{absl::NotFoundError(message), {}};
  });
  server.AnswerDescribe([&](const v1::DescribeRequest&, v1::DescribeResponse*) {
    return FakeAnswer{absl::NotFoundError(message), {}};
  });
  Client client(server.address());
  for (const absl::Status& status :
       {client.ProfileGraph({}).status(), client.DescribeGraph({}).status()}) {
    EXPECT_TRUE(absl::IsUnimplemented(status)) << status;
    EXPECT_THAT(status.message(), HasSubstr("older than this client"));
  }
  message = "step \"y\": kernel \"\" is unknown";
  EXPECT_TRUE(absl::IsNotFound(client.ProfileGraph({}).status()));
  EXPECT_TRUE(absl::IsNotFound(client.DescribeGraph({}).status()));
}

}  // namespace
}  // namespace warpcall::client
