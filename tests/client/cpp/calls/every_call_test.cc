// What holds for calls of every kind: in one message, in stripes, and as a stream.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "client/cpp/client.h"
#include "tests/client/fake_server.h"
#include "tests/client/stalled_peer.h"

namespace warpcall::client {
namespace {

using testing::EchoInputs;
using testing::FakeAnswer;
using testing::FakeServer;

// More than any call here takes, so that a defect fails a test instead of hanging it.
constexpr absl::Duration kPatience = absl::Seconds(60);
// Enough for three stripes, and in 64 MiB to fill every socket buffer on the way several times
// over.
constexpr size_t kBytes = size_t{3} << 20;
constexpr size_t kManyBytes = size_t{64} << 20;

enum class Kind { kMessage, kStripes, kStream };

class EveryCallTest : public ::testing::TestWithParam<Kind> {
 protected:
  EveryCallTest() {
    server_.AnswerExecuteStream([this](testing::ServerStream* stream) {
      if (hangs_) finish_.WaitForNotification();
      return testing::EchoStream(stream);
    });
    server_.AnswerListKernels([](v1::ListKernelsResponse* response) {
      v1::KernelInfo* kernel = response->add_kernels();
      kernel->set_name("identity");
      kernel->set_independence(v1::INDEPENDENCE_ELEMENTS);
      return absl::OkStatus();
    });
  }
  ~EveryCallTest() override { finish_.Notify(); }

  int connections() const { return GetParam() == Kind::kMessage ? 1 : 3; }

  static absl::StatusOr<Result> Send(Client* client, const std::vector<char>& bytes,
                                     absl::Duration timeout = kPatience) {
    const auto elements = static_cast<int64_t>(bytes.size() / sizeof(float));
    const Call call = {.kernel = "identity",
                       .inputs = {Tensor::Borrow(DataType::kFloat32, {elements}, bytes)},
                       .options = {.timeout = timeout}};
    return GetParam() == Kind::kStream ? client->ExecuteStream(call) : client->Execute(call);
  }

  // Until the test ends; set before the first call.
  bool hangs_ = false;
  absl::Notification finish_;
  FakeServer server_{[this](const v1::ExecuteRequest& request, v1::ExecuteResponse* response) {
    if (hangs_) finish_.WaitForNotification();
    return EchoInputs(request, response);
  }};
};

TEST_P(EveryCallTest, ManyThreadsShareAClient) {
  Client client(server_.address(), {.connections = connections()});
  std::atomic<int> right{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 3; ++i) {
        const std::vector<char> bytes(kBytes, static_cast<char>(3 * t + i));
        const auto result = Send(&client, bytes);
        const int stripes = GetParam() == Kind::kStripes ? 3 : 1;
        if (result.ok() && result->stripes == stripes &&
            result->outputs[0].data() == absl::MakeConstSpan(bytes))
          right.fetch_add(1);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right.load(), 24);
}

TEST_P(EveryCallTest, TheDeadlineEndsIt) {
  hangs_ = true;
  Client client(server_.address(), {.connections = connections()});
  const absl::Time start = absl::Now();
  const auto result = Send(&client, std::vector<char>(kBytes), absl::Milliseconds(500));
  EXPECT_EQ(result.status().code(), absl::StatusCode::kDeadlineExceeded) << result.status();
  EXPECT_LT(absl::Now() - start, absl::Seconds(15));
}

TEST_P(EveryCallTest, AnUnreachableServerIsTriedAgain) {
  std::atomic<int> pauses{0};
  Client client(server_.address(), {.retry = {.attempts_max = 3},
                                    .connections = connections(),
                                    .sleep = [&](absl::Duration) { pauses.fetch_add(1); }});
  server_.Stop();
  const auto result = Send(&client, std::vector<char>(kBytes));
  EXPECT_EQ(result.status().code(), absl::StatusCode::kUnavailable) << result.status();
  EXPECT_EQ(pauses.load(), 2);
}

TEST_P(EveryCallTest, AServerThatStopsReadingCannotHoldItForever) {
  testing::StalledPeer peer;
  const std::vector<char> bytes(kManyBytes, 1);
  Client client(peer.address(), {.retry = {.attempts_max = 1},
                                 .stall_timeout = absl::Seconds(1),
                                 .connections = connections()});
  const absl::Time start = absl::Now();
  const auto result = Send(&client, bytes, absl::Milliseconds(300));
  EXPECT_EQ(result.status().code(), absl::StatusCode::kDeadlineExceeded) << result.status();
  EXPECT_LT(absl::Now() - start, absl::Seconds(15));
}

std::string NameOf(const ::testing::TestParamInfo<Kind>& kind) {
  constexpr const char* kNames[] = {"Message", "Stripes", "Stream"};
  return kNames[static_cast<int>(kind.param)];
}

INSTANTIATE_TEST_SUITE_P(Kinds, EveryCallTest,
                         ::testing::Values(Kind::kMessage, Kind::kStripes, Kind::kStream), NameOf);

}  // namespace
}  // namespace warpcall::client
