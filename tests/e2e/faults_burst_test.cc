// Ten times more requests at once than may wait: each is done or told when to come back, and those
// of other connections do not suffer for it.
#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/e2e/raw_call.h"
#include "tests/e2e/server_process.h"
#include "tests/e2e/steady_clients.h"

namespace warpcall::testing {
namespace {

using ::testing::HasSubstr;

constexpr int kQueueLimit = 20;
constexpr int kBurst = 10 * kQueueLimit;
// Between bursts, so that what is measured is the queue and not how busy the machine is.
constexpr absl::Duration kPause = absl::Milliseconds(100);

// Some tenths of a millisecond on a lane: longer than it takes to receive, so that a burst of them
// has to wait.
v1::ExecuteRequest BurstRequest() {
  v1::ExecuteRequest request = Request("gelu", {FloatTensor(8192)});
  request.set_implementation("reference");
  return request;
}

struct Tally {
  int done = 0;
  int refused = 0;
};

// 0 without the trailer.
int PushbackMs(const grpc::ClientContext& context) {
  const auto& trailers = context.GetServerTrailingMetadata();
  const auto found = trailers.find("grpc-retry-pushback-ms");
  if (found == trailers.end()) return 0;
  return std::atoi(std::string(found->second.data(), found->second.size()).c_str());
}

// Sends kBurst requests at once, spread over the channels, and waits for all the answers.
Tally SendBurst(const std::vector<std::shared_ptr<grpc::Channel>>& channels,
                const grpc::ByteBuffer& request) {
  struct Call {
    grpc::ClientContext context;
    std::unique_ptr<grpc::GenericClientAsyncResponseReader> reader;
    grpc::ByteBuffer response;
    grpc::Status status;
  };
  grpc::CompletionQueue queue;
  std::vector<Call> calls(kBurst);
  for (size_t i = 0; i < calls.size(); ++i) {
    Call& call = calls[i];
    call.context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
    call.reader =
        grpc::GenericStub(channels[i % channels.size()])
            .PrepareUnaryCall(&call.context, "/warpcall.v1.KernelService/Execute", request, &queue);
    call.reader->StartCall();
    call.reader->Finish(&call.response, &call.status, nullptr);
  }
  for (size_t i = 0; i < calls.size(); ++i) {
    void* tag;
    bool ok;
    EXPECT_TRUE(queue.Next(&tag, &ok));
  }
  Tally tally;
  for (const Call& call : calls) {
    (call.status.ok() ? tally.done : tally.refused) += 1;
    if (call.status.ok()) continue;
    EXPECT_EQ(call.status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
    EXPECT_THAT(call.status.error_message(),
                HasSubstr(absl::StrCat("the limit is ", kQueueLimit, " (queue_limit)")));
    EXPECT_GE(PushbackMs(call.context), 1) << call.status.error_message();
  }
  return tally;
}

// Burst after burst.
class Bursts {
 public:
  Bursts(const std::string& address, int connections, Tally* total) : total_(total) {
    for (int i = 0; i < connections; ++i) channels_.push_back(Connect(address));
    thread_ = std::thread([this] { Repeat(); });
  }
  ~Bursts() {
    over_ = true;
    thread_.join();
  }

 private:
  void Repeat() {
    GiveWay();
    const grpc::Slice slice(BurstRequest().SerializeAsString());
    const grpc::ByteBuffer request(&slice, 1);
    while (!over_) {
      const Tally tally = SendBurst(channels_, request);
      total_->done += tally.done;
      total_->refused += tally.refused;
      absl::SleepFor(kPause);
    }
  }

  Tally* const total_;
  std::vector<std::shared_ptr<grpc::Channel>> channels_;
  std::atomic<bool> over_{false};
  std::thread thread_;
};

void ExpectBurstsAreHarmless(int connections) {
  ServerProcess server({absl::StrCat("--queue_limit=", kQueueLimit), "--log_level=error"});
  SteadyClients others(server.address());
  Tally total;
  ExpectUndisturbed(
      &others, [&] { return std::make_shared<Bursts>(server.address(), connections, &total); });
  EXPECT_GT(total.refused, 0);
  EXPECT_GT(total.done, 0);
  EXPECT_EQ((total.done + total.refused) % kBurst, 0);
  EXPECT_EQ(server.Sum("warpcall_requests_total", {"kernel=\"gelu\"", "code=\"OK\""}), total.done);
  EXPECT_EQ(server.Sum("warpcall_rejected_total", {"reason=\"queue_requests\""}), total.refused);
  EXPECT_EQ(server.Sum("warpcall_requests_total"), others.sent() + total.done + total.refused);
  EXPECT_EQ(server.Sum("warpcall_queue_depth"), 0);
  EXPECT_EQ(server.Stop(), 0);
}

TEST(FaultsBurst, TenTimesTheQueueFromOneConnection) { ExpectBurstsAreHarmless(1); }

TEST(FaultsBurst, TenTimesTheQueueFromManyConnections) { ExpectBurstsAreHarmless(10); }

}  // namespace
}  // namespace warpcall::testing
