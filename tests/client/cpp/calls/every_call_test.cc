// Properties of every kind of call: in one message, in stripes, and as a stream.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "tests/client/fake_server.h"
#include "tests/client/patience.h"
#include "tests/client/stalled_peer.h"
#include "tests/e2e/eventually.h"
#include "warpcall/client.h"

namespace warpcall::client {
namespace {

using testing::EchoInputs;
using testing::FakeAnswer;
using testing::FakeServer;
using testing::kPatience;

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

  static absl::StatusOr<Result> Send(Client* client, const Call& call) {
    return GetParam() == Kind::kStream ? client->ExecuteStream(call) : client->Execute(call);
  }

  static absl::StatusOr<Result> Send(Client* client, const std::vector<char>& bytes,
                                     CallOptions options = {.timeout = kPatience}) {
    return Send(client, {.kernel = "identity",
                         .inputs = {Tensor::Borrow(DataType::kFloat32, Shape(bytes), bytes)},
                         .options = std::move(options)});
  }

  static std::vector<int64_t> Shape(const std::vector<char>& bytes) {
    return {static_cast<int64_t>(bytes.size() / sizeof(float))};
  }

  // Requests that have reached the server.
  int arrived() const { return server_.executes() + server_.execute_streams(); }
  int wanted_requests() const { return GetParam() == Kind::kStripes ? 3 : 1; }

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
  const auto result =
      Send(&client, std::vector<char>(kBytes), {.timeout = absl::Milliseconds(500)});
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
  const auto result = Send(&client, bytes, {.timeout = absl::Milliseconds(300)});
  EXPECT_EQ(result.status().code(), absl::StatusCode::kDeadlineExceeded) << result.status();
  EXPECT_LT(absl::Now() - start, absl::Seconds(15));
}

TEST_P(EveryCallTest, ACancellationEndsIt) {
  hangs_ = true;
  Client client(server_.address(), {.connections = connections()});
  Cancellation every_call, cancellation(&every_call);
  for (Cancellation* ends : {&cancellation, &every_call}) {  // a parent ends it as well
    Cancellation ours(ends);
    const int before = arrived();
    std::thread canceller([&] {
      EXPECT_TRUE(testing::Eventually([&] { return arrived() == before + wanted_requests(); }));
      ends->Cancel();
    });
    const auto result =
        Send(&client, std::vector<char>(kBytes), {.timeout = kPatience, .cancellation = &ours});
    canceller.join();
    EXPECT_EQ(result.status().code(), absl::StatusCode::kCancelled) << result.status();
  }
  // A call cancelled beforehand starts nothing that could end otherwise.
  const auto result = Send(&client, std::vector<char>(kBytes),
                           {.timeout = kPatience, .cancellation = &cancellation});
  EXPECT_EQ(result.status().code(), absl::StatusCode::kCancelled) << result.status();
}

TEST_P(EveryCallTest, TheCallersTraceIsPassedOn) {
  const std::string trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
  Client client(server_.address(), {.connections = connections()});
  ASSERT_TRUE(Send(&client, std::vector<char>(kBytes)).ok());
  EXPECT_TRUE(server_.traces().empty());
  const CallOptions options = {.timeout = kPatience, .traceparent = trace};
  ASSERT_TRUE(Send(&client, std::vector<char>(kBytes), options).ok());
  const std::multiset<std::string> seen = server_.traces();
  EXPECT_EQ(seen.count(trace), static_cast<size_t>(wanted_requests()));
  EXPECT_EQ(seen.size(), seen.count(trace));
  for (const std::string& wrong :
       {std::string("x"), trace + "0", "00-0AF7651916CD43DD8448EB211C80319C" + trace.substr(35),
        trace.substr(0, 54) + "\n", trace.substr(0, 2) + "0" + trace.substr(3)}) {
    const auto result = Send(&client, std::vector<char>(kBytes), {.traceparent = wrong});
    EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument) << wrong;
  }
}

TEST_P(EveryCallTest, ItWritesToTheCallersMemory) {
  Client client(server_.address(), {.connections = connections()});
  std::vector<char> bytes(kBytes), out(kBytes, 'x');
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i % 251);
  const auto send = [&](TensorSpec spec, absl::Span<char> memory, size_t count) {
    return Send(&client, {.kernel = "identity",
                          .inputs = {Tensor::Borrow(DataType::kFloat32, Shape(bytes), bytes)},
                          .options = {.timeout = kPatience},
                          .destinations = std::vector<Destination>(
                              count, Destination{std::move(spec), memory})});
  };
  const TensorSpec spec = {DataType::kFloat32, Shape(bytes)};
  const auto result = send(spec, absl::MakeSpan(out), 1);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->outputs[0].data().data(), out.data());
  EXPECT_EQ(out, bytes);

  out.assign(kBytes, 'x');
  const std::vector<int64_t> other = {2, Shape(bytes)[0] / 2};
  for (const auto& refused :
       {send({DataType::kFloat32, other}, absl::MakeSpan(out), 1),
        send({DataType::kBFloat16, Shape(bytes)}, absl::MakeSpan(out), 1),
        send(spec, absl::MakeSpan(out).subspan(4), 1), send(spec, absl::MakeSpan(out), 2)})
    EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument) << refused.status();
  EXPECT_EQ(out, std::vector<char>(kBytes, 'x'));
  EXPECT_THAT(std::string(send({DataType::kFloat32, {7}}, {}, 1).status().message()),
              ::testing::StartsWith("out is float32[7]; the result is float32["));
}

// Calls of one message only: a waiting thread can be reached in no other way.
class AskingTest : public EveryCallTest {};

TEST_P(AskingTest, AThreadThatWaitsAsksWhetherItsCallIsWanted) {
  hangs_ = true;
  Client client(server_.address());
  std::atomic<int> asked{0};
  Cancellation asking(nullptr, [&] { return arrived() == 0 || asked.fetch_add(1) == 0; });
  Cancellation cancellation(&asking);
  const auto result = Send(&client, std::vector<char>(kBytes),
                           {.timeout = kPatience, .cancellation = &cancellation});
  EXPECT_EQ(result.status().code(), absl::StatusCode::kCancelled) << result.status();
  EXPECT_GE(asked.load(), 2);
}

TEST_P(AskingTest, SoDoesOneThatPausesBeforeItTriesAgain) {
  std::atomic<int> asked{0};
  std::atomic<int> calls{0};
  FakeServer busy([&](const v1::ExecuteRequest&, v1::ExecuteResponse*) {
    calls.fetch_add(1);
    return FakeAnswer{absl::UnavailableError("busy"), "50000"};
  });
  Client client(busy.address());
  Cancellation cancellation(nullptr, [&] { return calls.load() == 0 || asked.fetch_add(1) == 0; });
  const auto result = Send(&client, std::vector<char>(kBytes),
                           {.timeout = kPatience, .cancellation = &cancellation});
  EXPECT_EQ(result.status().code(), absl::StatusCode::kCancelled) << result.status();
  EXPECT_EQ(calls.load(), 1);
}

INSTANTIATE_TEST_SUITE_P(Message, AskingTest, ::testing::Values(Kind::kMessage));

std::string NameOf(const ::testing::TestParamInfo<Kind>& kind) {
  constexpr const char* kNames[] = {"Message", "Stripes", "Stream"};
  return kNames[static_cast<int>(kind.param)];
}

INSTANTIATE_TEST_SUITE_P(Kinds, EveryCallTest,
                         ::testing::Values(Kind::kMessage, Kind::kStripes, Kind::kStream), NameOf);

}  // namespace
}  // namespace warpcall::client
