#include "warpcall/client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "tests/client/fake_server.h"
#include "tests/client/patience.h"
#include "tests/client/stalled_peer.h"
#include "tests/temp_folder.h"

namespace warpcall::client {
namespace {

using testing::EchoInputs;
using ::testing::ElementsAre;
using testing::FakeAnswer;
using testing::FakeServer;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::kPatience;

// A client that records its pauses instead of sleeping.
class PausingClient {
 public:
  explicit PausingClient(const FakeServer& server, RetryOptions retry = {})
      : client_(server.address(),
                {.retry = retry, .timeout = kPatience, .sleep = [this](absl::Duration pause) {
                   absl::MutexLock lock(&mutex_);
                   pauses_.push_back(pause);
                 }}) {}

  Client* operator->() { return &client_; }
  std::vector<absl::Duration> pauses() {
    absl::MutexLock lock(&mutex_);
    return pauses_;
  }

 private:
  absl::Mutex mutex_;
  std::vector<absl::Duration> pauses_ ABSL_GUARDED_BY(mutex_);
  Client client_;
};

// Gives `answers` in turn, then echoes.
testing::ExecuteHandler Answers(std::vector<FakeAnswer> answers) {
  auto next = std::make_shared<std::atomic<size_t>>(0);
  return [answers = std::move(answers), next](const v1::ExecuteRequest& request,
                                              v1::ExecuteResponse* response) {
    const size_t i = next->fetch_add(1);
    return i < answers.size() ? answers[i] : EchoInputs(request, response);
  };
}

FakeAnswer Busy(std::optional<std::string> pushback) {
  return {absl::ResourceExhaustedError("queue_limit of 8 requests"), std::move(pushback)};
}

Tensor Numbers() { return Tensor::FromFloats({2, 2}, {1, 2, 3, 4}); }

// A server that echoes, and the last request as text.
class NotingServer {
 public:
  const std::string& address() const { return server_.address(); }
  const std::string& seen() const { return seen_; }

 private:
  std::string seen_;
  FakeServer server_{[this](const v1::ExecuteRequest& request, v1::ExecuteResponse* response) {
    seen_ = testing::Text(request);
    return EchoInputs(request, response);
  }};
};

// RunCliTest covers the fields beside outputs, which `warpcall run --json` prints.
TEST(ClientTest, SendsEveryFieldAndReadsTheOutputs) {
  NotingServer server;
  Client client(server.address());
  const auto result = client.Execute(
      {.kernel = "gelu",
       .inputs = {Numbers(), Tensor::Borrow(DataType::kBFloat16, {1, 0}, {})},
       .attributes = {{"b", true}, {"i", int64_t{-7}}, {"d", 0.5}, {"s", std::string("tanh")}},
       .options = {.implementation = "simd_fused",
                   .device = "cpu",
                   .request_id = "r-1",
                   .timeout = kPatience}});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(server.seen(),
            "kernel: \"gelu\" implementation: \"simd_fused\""
            " inputs { data_type: DATA_TYPE_FLOAT32 shape: 2 shape: 2"
            " data: \"\\000\\000\\200?\\000\\000\\000@\\000\\000@@\\000\\000\\200@\" }"
            " inputs { data_type: DATA_TYPE_BFLOAT16 shape: 1 shape: 0 }"
            " attributes { key: \"b\" value { bool_value: true } }"
            " attributes { key: \"d\" value { double_value: 0.5 } }"
            " attributes { key: \"i\" value { int_value: -7 } }"
            " attributes { key: \"s\" value { string_value: \"tanh\" } }"
            " device: \"cpu\" request_id: \"r-1\"");
  ASSERT_EQ(result->outputs.size(), 2u);
  EXPECT_THAT(result->outputs[0].ToFloats(), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(result->outputs[0].shape(), ElementsAre(2, 2));
  EXPECT_EQ(result->outputs[1].data_type(), DataType::kBFloat16);
  EXPECT_THAT(result->outputs[1].shape(), ElementsAre(1, 0));
  EXPECT_EQ(result->request_id, "r-1");
}

TEST(ClientTest, TypedCallsNameTheirKernelsAndAttributes) {
  NotingServer server;
  Client client(server.address(), {.timeout = kPatience});
  const Tensor empty = Tensor::Borrow(DataType::kFloat32, {0}, {});
  const std::string input = " inputs { data_type: DATA_TYPE_FLOAT32 shape: 0 }";
  ASSERT_TRUE(client.Identity(empty, {.device = "cuda:0"}).ok());
  EXPECT_EQ(server.seen(), "kernel: \"identity\"" + input + " device: \"cuda:0\"");
  ASSERT_TRUE(client.Gelu(empty, "none").ok());
  EXPECT_EQ(server.seen(),
            "kernel: \"gelu\"" + input +
                " attributes { key: \"approximate\" value { string_value: \"none\" } }");
  ASSERT_TRUE(client.Softmax(empty, 0).ok());
  EXPECT_EQ(server.seen(),
            "kernel: \"softmax\"" + input + " attributes { key: \"axis\" value { int_value: 0 } }");
  ASSERT_TRUE(client.Matmul(empty, empty, {.transpose_b = true, .precision = "tf32"}).ok());
  EXPECT_EQ(server.seen(), "kernel: \"matmul\"" + input + input +
                               " attributes { key: \"precision\" value { string_value: \"tf32\" } }"
                               " attributes { key: \"transpose_a\" value { bool_value: false } }"
                               " attributes { key: \"transpose_b\" value { bool_value: true } }");
}

TEST(ClientTest, WorksOverAUnixSocket) {
  const testing::TempFolder folder;
  FakeServer server(EchoInputs, "unix:" + folder.Path("socket"));
  Client client(server.address(), {.timeout = kPatience});
  EXPECT_TRUE(client.Identity(Numbers()).ok());
}

TEST(ClientRetryTest, HonoursPushback) {
  FakeServer server(Answers({Busy("40"), Busy("70")}));
  PausingClient client(server);
  const auto result = client->Identity(Numbers());
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->attempts, 3);
  EXPECT_THAT(result->outputs[0].ToFloats(), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(client.pauses(), ElementsAre(absl::Milliseconds(40), absl::Milliseconds(70)));
}

TEST(ClientRetryTest, BacksOffFromAnUnavailableServer) {
  FakeServer server(Answers({{absl::UnavailableError("draining"), std::nullopt}}));
  PausingClient client(server);
  const auto result = client->Identity(Numbers());
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(server.executes(), 2);
  ASSERT_EQ(client.pauses().size(), 1u);
  EXPECT_GE(client.pauses()[0], absl::Milliseconds(40));
  EXPECT_LE(client.pauses()[0], absl::Milliseconds(60));
}

TEST(ClientRetryTest, GivesTheLastAnswerWhenAttemptsRunOut) {
  FakeServer server(Answers(std::vector<FakeAnswer>(10, Busy("1"))));
  PausingClient client(server, {.attempts_max = 3});
  const auto result = client->Identity(Numbers());
  EXPECT_EQ(result.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(result.status().message(), "queue_limit of 8 requests");
  EXPECT_EQ(RetryPushbackMs(result.status()), 1);
  EXPECT_EQ(server.executes(), 3);
}

TEST(ClientRetryTest, BudgetEndsRetriesOfAllCalls) {
  FakeServer server(Answers(std::vector<FakeAnswer>(10, Busy("1"))));
  PausingClient client(server, {.attempts_max = 2, .budget_max = 2});
  for (int call = 0; call < 4; ++call) EXPECT_FALSE(client->Identity(Numbers()).ok());
  EXPECT_EQ(server.executes(), 4 + 2);
}

TEST(ClientRetryTest, RefusalsThatStandAreNotRetried) {
  const FakeAnswer kAnswers[] = {
      Busy("-1"),
      Busy("later"),
      Busy(std::nullopt),  // like gRPC's refusal of a large message
      {absl::InvalidArgumentError("axis 5 of rank 2"), "5"},
  };
  for (const FakeAnswer& answer : kAnswers) {
    FakeServer server(Answers({answer}));
    PausingClient client(server);
    const absl::Status status = client->Identity(Numbers()).status();
    EXPECT_EQ(status.code(), answer.status.code());
    EXPECT_EQ(status.message(), answer.status.message());
    EXPECT_EQ(RetryPushbackMs(status).has_value(), answer.pushback.has_value()) << status;
    EXPECT_EQ(server.executes(), 1) << answer.status;
    EXPECT_THAT(client.pauses(), IsEmpty());
  }
}

TEST(ClientRetryTest, NeverPausesPastTheDeadline) {
  FakeServer server(Answers({Busy("30000")}));
  PausingClient client(server);
  const auto result = client->Identity(Numbers(), {.timeout = absl::Seconds(20)});
  EXPECT_EQ(result.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(server.executes(), 1);
  EXPECT_THAT(client.pauses(), IsEmpty());
}

TEST(ClientTest, ADistantServerIsWaitedFor) {
  testing::StalledPeer peer(absl::Milliseconds(400));
  Client client(peer.address(), {.retry = {.attempts_max = 1}, .stall_timeout = absl::Seconds(1)});
  // Connected, it waits for an answer that never comes: not UNAVAILABLE for want of a connection.
  const auto result = client.Identity(Tensor::FromFloats({1}, {1}), {.timeout = absl::Seconds(2)});
  EXPECT_EQ(result.status().code(), absl::StatusCode::kDeadlineExceeded) << result.status();
}

}  // namespace
}  // namespace warpcall::client
