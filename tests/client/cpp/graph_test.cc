// ExecuteGraph by the C++ client, against a server whose answers the test decides.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/client/fake_server.h"
#include "warpcall/client.h"

namespace warpcall::client {
namespace {

using testing::EchoGraph;
using ::testing::ElementsAre;
using testing::FakeAnswer;
using testing::FakeServer;
using ::testing::HasSubstr;

constexpr absl::Duration kPatience = absl::Seconds(60);

class GraphTest : public ::testing::Test {
 protected:
  GraphTest() {
    server_.AnswerExecuteGraph(
        [this](const v1::ExecuteGraphRequest& request, v1::ExecuteGraphResponse* response) {
          requests_.push_back(request);
          for (const v1::GraphInput& input : request.inputs())
            if (input.tensor().handle() == lost_)
              return FakeAnswer{absl::NotFoundError("lost"), {}, lost_ + " " + why_};
          if (refusals_ > 0) {
            --refusals_;
            return FakeAnswer{absl::UnavailableError("busy"), {}};
          }
          return EchoGraph(request, response);
        });
    server_.AnswerPut([this](const std::vector<v1::PutRequest>&, v1::PutResponse* response) {
      response->set_handle(absl::StrCat("handle-", ++puts_));
      response->set_device("cpu");
      return FakeAnswer{};
    });
  }

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
  Cancellation cancellation;
  cancellation.Cancel();
  request = Request(x_);
  request.cancellation = &cancellation;
  EXPECT_TRUE(absl::IsCancelled(client_.ExecuteGraph(request).status()));
  EXPECT_TRUE(requests_.empty());
}

TEST(OldServerGraphTest, SaysThatTheServerIsOlder) {
  FakeServer server(testing::EchoInputs);
  Client client(server.address());
  const absl::Status status = client.ExecuteGraph({}).status();
  EXPECT_TRUE(absl::IsUnimplemented(status));
  EXPECT_THAT(status.message(), HasSubstr("older than this client"));
}

}  // namespace
}  // namespace warpcall::client
