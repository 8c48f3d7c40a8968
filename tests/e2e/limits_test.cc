// Work that does not end by itself, through the real server: it ends with its client, with its
// deadline, with the drain and at --max_run_seconds, and it does not keep others from a lane.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <string>

#include "tests/e2e/counted_server.h"
#include "tests/e2e/eventually.h"
#include "tests/e2e/held_request.h"
#include "tests/e2e/pending_call.h"
#include "tests/e2e/raw_call.h"
#include "tests/e2e/raw_http2.h"
#include "tests/e2e/server_process.h"
#include "warpcall/v1/warpcall.grpc.pb.h"

namespace warpcall::testing {
namespace {

using ::testing::HasSubstr;

constexpr int kNotDrained = 3;

// Number of the endless requests whose kernel ran to an end.
double RanToTheEnd(const ServerProcess& server) {
  return server.Sum("warpcall_kernel_duration_seconds_count", {"kernel=\"held\""});
}

TEST(Limits, WhatTheDrainLeavesEndsWithUnavailableAndIsLogged) {
  ServerProcess server(FlagsForHeld({"--lanes_per_device=1", "--drain_seconds=0.2"}));
  const Gate gate;
  PendingCall running(server, gate.HeldRequest());
  ASSERT_TRUE(Eventually([&] { return LaneIsHeld(server); }));
  PendingCall waiting(server, gate.HeldRequest());
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
  EXPECT_EQ(server.Stop(), kNotDrained);
  for (PendingCall* call : {&running, &waiting}) {
    EXPECT_EQ(call->Code(), grpc::StatusCode::UNAVAILABLE);
    EXPECT_THAT(call->Wait().error_message(), HasSubstr("drain_seconds"));
    EXPECT_EQ(call->pushback_ms(), "1000");
  }
  const grpc::Status ended = stream->Finish();
  EXPECT_EQ(ended.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(ended.error_message(), HasSubstr("drain_seconds"));
  EXPECT_THAT(server.log(), HasSubstr("waiting=1 running=1 streams=1 inspections=0"));
}

// A row that looks at no flag keeps its thread for good, but not the process.
TEST(Limits, WhatDoesNotStopEndsWithTheProcess) {
  ServerProcess server(FlagsForHeld({"--lanes_per_device=1", "--drain_seconds=0.1"}));
  v1::ExecuteRequest request = Request("broken", {FloatTensor(16)});
  request.set_implementation("endless");
  PendingCall stuck(server, request);
  ASSERT_TRUE(Eventually([&] { return LaneIsHeld(server); }));
  EXPECT_EQ(server.Stop(), kNotDrained);
  EXPECT_EQ(stuck.Code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(server.log(), HasSubstr("a job does not stop"));
}

// gRPC's own clients never send such a deadline: theirs end at three years.
TEST(Limits, ADeadlineThatIsMillenniaAheadIsNotPassed) {
  ServerProcess server;
  RawHttp2 client(server.address());
  client.Send(RawHttp2::CallFrames(1, Request("gelu", {FloatTensor(16)}).SerializeAsString(),
                                   "99999999H"));
  EXPECT_TRUE(client.AwaitEnd(1));
  EXPECT_THAT(client.headers(), HasSubstr("\x0bgrpc-status\x01" "0"));
  EXPECT_EQ(server.Stop(), 0);
}

TEST(Limits, ACancelledRequestLeavesItsLaneToOthers) {
  CountedServer server(FlagsForHeld({"--lanes_per_device=1"}));
  const Gate gate;
  PendingCall call(server.process(), gate.HeldRequest());
  ASSERT_TRUE(Eventually([&] { return LaneIsHeld(server.process()); }));
  call.Cancel();
  EXPECT_EQ(call.Code(), grpc::StatusCode::CANCELLED);
  server.Expect({HeldEnds(grpc::StatusCode::CANCELLED)});
  EXPECT_EQ(RanToTheEnd(server.process()), 0);
  server.ExpectNothingMore();
}

TEST(Limits, ADeadlineThatPassesLeavesItsLaneToOthers) {
  CountedServer server(FlagsForHeld({"--lanes_per_device=1"}));
  const Gate gate;
  // A client that leaves it to the server to end the call, far later than a lane takes it.
  RawHttp2 client(server.address());
  client.Send(RawHttp2::CallFrames(1, gate.HeldRequest().SerializeAsString(), "2S"));
  EXPECT_TRUE(client.AwaitEnd(1));
  server.Expect({HeldEnds(grpc::StatusCode::DEADLINE_EXCEEDED)});
  EXPECT_EQ(RanToTheEnd(server.process()), 0);
  server.ExpectNothingMore();
}

TEST(Limits, WhatHoldsItsLaneTooLongIsStopped) {
  CountedServer server(FlagsForHeld({"--max_run_seconds=0.1"}));
  const Gate gate;
  const Reply reply =
      server.Send(gate.HeldRequest(), HeldEnds(grpc::StatusCode::RESOURCE_EXHAUSTED));
  EXPECT_THAT(reply.status.error_message(), HasSubstr("the limit is 0.1 s (max_run_seconds)"));
  EXPECT_EQ(reply.pushback_ms, "-1");
  EXPECT_EQ(server.process().Sum("warpcall_rejected_total", {"reason=\"run_time\""}), 1);
  EXPECT_EQ(RanToTheEnd(server.process()), 0);
  server.ExpectNothingMore();
}

// A worker is asked nothing while it works, as a GPU that hangs.
TEST(Limits, AWorkerThatDoesNotAnswerInTimeIsKilledAndReplaced) {
  ServerProcess server(
      FlagsForHeld({"--test_cpu_workers=1", "--lanes_per_device=1", "--max_run_seconds=0.5"}));
  const Gate gate;
  PendingCall call(server, gate.HeldRequest());
  EXPECT_EQ(call.Code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(call.Wait().error_message(), HasSubstr("the limit is 0.5 s (max_run_seconds)"));
  EXPECT_TRUE(Eventually([&] { return server.Sum("warpcall_worker_restarts_total") == 1; }));
  EXPECT_TRUE(Eventually([&] {
    return Execute(Connect(server.address()), Request("gelu", {FloatTensor(4)})).status.ok();
  })) << server.log();
  EXPECT_EQ(server.Stop(), 0);
}

TEST(Limits, AWorkerThatTheDrainLeavesIsKilled) {
  ServerProcess server(
      FlagsForHeld({"--test_cpu_workers=1", "--lanes_per_device=1", "--drain_seconds=0.2"}));
  const Gate gate;
  PendingCall call(server, gate.HeldRequest());
  ASSERT_TRUE(Eventually([&] { return LaneIsHeld(server); }));
  EXPECT_EQ(server.Stop(), kNotDrained);
  EXPECT_EQ(call.Code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(call.Wait().error_message(), HasSubstr("drain_seconds"));
}

// Both lanes were taken, and the gelu waited until one of the others was done.
TEST(Limits, OneClientsLongRequestsDoNotHoldUpAnothersShortOne) {
  ServerProcess server(FlagsForHeld({"--lanes_per_device=2", "--drain_seconds=0"}));
  const Gate gate;
  v1::ExecuteRequest request = gate.HeldRequest();
  // Seconds on a slow machine, for all that the server knows: it may be long.
  (*request.mutable_attributes())["flops"].set_int_value(1'000'000'000);
  PendingCall first(server, request);
  PendingCall second(server, request);
  ASSERT_TRUE(Eventually([&] {
    return server.Sum("warpcall_queue_depth") == 1 &&
           server.Sum("warpcall_staging_bytes", {"state=\"used\""}) > 0;
  }));
  const Reply gelu = Execute(Connect(server.address()), Request("gelu", {FloatTensor(1 << 20)}));
  EXPECT_TRUE(gelu.status.ok()) << gelu.CodeAndMessage();
  EXPECT_EQ(server.Sum("warpcall_requests_total", {"kernel=\"held\""}), 0);
  EXPECT_EQ(server.Stop(), kNotDrained);
}

}  // namespace
}  // namespace warpcall::testing
