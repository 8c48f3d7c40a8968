// Work that takes long, through the real server: it ends with its client, with its deadline, with
// the drain and at --max_run_seconds, and it does not keep others from a lane. How fast the machine
// is does not matter: what is waited for comes before work that takes it seconds at least.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/e2e/eventually.h"
#include "tests/e2e/raw_call.h"
#include "tests/e2e/server_process.h"
#include "warpcall/v1/warpcall.grpc.pb.h"

namespace warpcall::testing {
namespace {

using ::testing::HasSubstr;

constexpr int kNotDrained = 3;

// Work that is predicted to take too long is refused; here it has to be seen.
constexpr char kUnforeseen[] = "--self_test=off";

// Seconds on many cores, minutes on few.
v1::ExecuteRequest LongRequest(int64_t size = 4096) {
  v1::Tensor square = FloatTensor(size * size);
  square.set_shape(0, size);
  square.add_shape(size);
  v1::ExecuteRequest request = Request("matmul", {square, square});
  request.set_implementation("reference");
  return request;
}

// A call that another thread waits for, and that can be cancelled.
class LongCall {
 public:
  LongCall(const ServerProcess& server, const v1::ExecuteRequest& request,
           std::chrono::milliseconds timeout = std::chrono::minutes(10))
      : stub_(v1::KernelService::NewStub(Connect(server.address()))) {
    context_.set_deadline(std::chrono::system_clock::now() + timeout);
    thread_ =
        std::thread([this, request] { status_ = stub_->Execute(&context_, request, &response_); });
  }
  ~LongCall() {
    context_.TryCancel();
    Wait();
  }
  void Cancel() { context_.TryCancel(); }
  const grpc::Status& Wait() {
    if (thread_.joinable()) thread_.join();
    return status_;
  }
  std::string pushback() const {
    const auto& trailers = context_.GetServerTrailingMetadata();
    const auto found = trailers.find("grpc-retry-pushback-ms");
    return found == trailers.end() ? "" : std::string(found->second.data(), found->second.size());
  }

 private:
  std::unique_ptr<v1::KernelService::Stub> stub_;
  grpc::ClientContext context_;
  v1::ExecuteResponse response_;
  grpc::Status status_;
  std::thread thread_;
};

double Requests(const ServerProcess& server, const std::string& kernel, const std::string& code) {
  return server.Sum("warpcall_requests_total",
                    {"kernel=\"" + kernel + "\"", "code=\"" + code + "\""});
}

// How many of the long requests had a kernel that ran to its end.
double RanToTheEnd(const ServerProcess& server) {
  return server.Sum("warpcall_kernel_duration_seconds_count", {"kernel=\"matmul\""});
}

bool IsBusy(const ServerProcess& server) {
  return server.Sum("warpcall_staging_bytes", {"state=\"used\""}) > 0 &&
         server.Sum("warpcall_queue_depth") == 0;
}

// Longer at work than copying the inputs takes, after which a request that is not wanted any more
// ends anyway.
bool IsComputing(const ServerProcess& server) {
  return IsBusy(server) && server.Sum("warpcall_device_busy_seconds_total") > 0.7;
}

TEST(Limits, WhatTheDrainLeavesEndsWithUnavailableAndIsLogged) {
  ServerProcess server({kUnforeseen, "--lanes_per_device=1", "--drain_seconds=0.2"});
  LongCall running(server, LongRequest());
  ASSERT_TRUE(Eventually([&] { return IsBusy(server); }));
  LongCall waiting(server, LongRequest());
  ASSERT_TRUE(Eventually([&] { return server.Sum("warpcall_queue_depth") == 1; }));
  const auto stub = v1::KernelService::NewStub(Connect(server.address()));
  grpc::ClientContext context;
  const auto stream = stub->ExecuteStream(&context);  // its client says nothing more
  v1::ExecuteStreamRequest header;
  *header.mutable_header() = Request("gelu", {FloatTensor(4)});
  header.mutable_header()->mutable_inputs(0)->clear_data();
  ASSERT_TRUE(stream->Write(header));
  v1::ExecuteStreamResponse opened;
  ASSERT_TRUE(stream->Read(&opened));
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(server.Stop(), kNotDrained);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
  for (LongCall* call : {&running, &waiting}) {
    EXPECT_EQ(call->Wait().error_code(), grpc::StatusCode::UNAVAILABLE);
    EXPECT_THAT(call->Wait().error_message(), HasSubstr("drain_seconds"));
    EXPECT_EQ(call->pushback(), "1000");
  }
  const grpc::Status ended = stream->Finish();
  EXPECT_EQ(ended.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(ended.error_message(), HasSubstr("drain_seconds"));
  EXPECT_THAT(server.log(), HasSubstr("waiting=1 running=1 streams=1 inspections=0"));
}

// A row that looks at no flag keeps its thread for good, but not the process.
TEST(Limits, WhatDoesNotStopEndsWithTheProcess) {
  ServerProcess server(
      {kUnforeseen, "--test_fault_injection", "--lanes_per_device=1", "--drain_seconds=0.1"});
  v1::ExecuteRequest request = Request("broken", {FloatTensor(16)});
  request.set_implementation("endless");
  LongCall stuck(server, request);
  ASSERT_TRUE(Eventually([&] { return IsBusy(server); }));
  EXPECT_EQ(server.Stop(), kNotDrained);
  EXPECT_EQ(stuck.Wait().error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(server.log(), HasSubstr("a job does not stop"));
}

TEST(Limits, ACancelledRequestLeavesItsLaneToOthers) {
  ServerProcess server({kUnforeseen, "--lanes_per_device=1"});
  LongCall call(server, LongRequest());
  ASSERT_TRUE(Eventually([&] { return IsComputing(server); }));
  call.Cancel();
  EXPECT_TRUE(Execute(Connect(server.address()), Request("gelu", {FloatTensor(4)})).status.ok());
  EXPECT_EQ(RanToTheEnd(server), 0);
  EXPECT_TRUE(Eventually([&] { return Requests(server, "matmul", "CANCELLED") == 1; }));
  EXPECT_EQ(server.Stop(), 0);
}

TEST(Limits, ADeadlineThatPassesLeavesItsLaneToOthers) {
  ServerProcess server({kUnforeseen, "--lanes_per_device=1"});
  LongCall call(server, LongRequest(), std::chrono::seconds(6));
  ASSERT_TRUE(Eventually([&] { return IsComputing(server); }));
  EXPECT_TRUE(Execute(Connect(server.address()), Request("gelu", {FloatTensor(4)})).status.ok());
  EXPECT_EQ(call.Wait().error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  // The client gives up by its own clock, which began earlier: on a busy machine the server hears
  // of that before it sees the deadline pass.
  EXPECT_TRUE(Eventually([&] {
    return Requests(server, "matmul", "DEADLINE_EXCEEDED") +
               Requests(server, "matmul", "CANCELLED") ==
           1;
  }));
  EXPECT_EQ(RanToTheEnd(server), 0);
  EXPECT_EQ(server.Stop(), 0);
}

TEST(Limits, WhatHoldsItsLaneTooLongIsStopped) {
  ServerProcess server({kUnforeseen, "--max_run_seconds=0.1"});
  LongCall call(server, LongRequest());
  EXPECT_EQ(call.Wait().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(call.Wait().error_message(), HasSubstr("the limit is 0.1 s (max_run_seconds)"));
  EXPECT_EQ(call.pushback(), "-1");
  EXPECT_EQ(server.Sum("warpcall_rejected_total", {"reason=\"run_time\""}), 1);
  EXPECT_EQ(RanToTheEnd(server), 0);
  EXPECT_EQ(server.Stop(), 0);
}

// A worker of the CPU runs rows that nobody asks to stop, as a GPU that hangs.
TEST(Limits, AWorkerThatDoesNotAnswerInTimeIsKilledAndReplaced) {
  ServerProcess server(
      {kUnforeseen, "--test_cpu_workers=1", "--lanes_per_device=1", "--max_run_seconds=0.5"});
  LongCall call(server, LongRequest());
  EXPECT_EQ(call.Wait().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(call.Wait().error_message(), HasSubstr("the limit is 0.5 s (max_run_seconds)"));
  EXPECT_TRUE(Eventually([&] { return server.Sum("warpcall_worker_restarts_total") == 1; }));
  EXPECT_TRUE(Eventually([&] {
    return Execute(Connect(server.address()), Request("gelu", {FloatTensor(4)})).status.ok();
  })) << server.log();
  EXPECT_EQ(server.Stop(), 0);
}

TEST(Limits, AWorkerThatTheDrainLeavesIsKilled) {
  ServerProcess server(
      {kUnforeseen, "--test_cpu_workers=1", "--lanes_per_device=1", "--drain_seconds=0.2"});
  LongCall call(server, LongRequest());
  ASSERT_TRUE(Eventually([&] { return IsBusy(server); }));
  EXPECT_EQ(server.Stop(), kNotDrained);
  EXPECT_EQ(call.Wait().error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(call.Wait().error_message(), HasSubstr("drain_seconds"));
}

// Both lanes were taken, and the gelu waited until one of the products was done.
TEST(Limits, OneClientsLongRequestsDoNotHoldUpAnothersShortOne) {
  ServerProcess server(
      {kUnforeseen, "--lanes_per_device=2", "--drain_seconds=0", "--max_run_seconds=600"});
  const v1::ExecuteRequest request = LongRequest();
  const auto bytes = static_cast<double>(3 * request.inputs(0).data().size());
  LongCall first(server, request);
  LongCall second(server, request);
  // One runs, and the other waits or runs.
  ASSERT_TRUE(Eventually([&] {
    return server.Sum("warpcall_queue_depth") +
               server.Sum("warpcall_staging_bytes", {"state=\"used\""}) / bytes >
           1.99;
  }));
  const Reply gelu = Execute(Connect(server.address()), Request("gelu", {FloatTensor(1 << 20)}));
  EXPECT_TRUE(gelu.status.ok()) << gelu.CodeAndMessage();
  EXPECT_EQ(server.Sum("warpcall_requests_total", {"kernel=\"matmul\""}), 0);
  EXPECT_EQ(server.Stop(), kNotDrained);
}

}  // namespace
}  // namespace warpcall::testing
