// More work than the server takes, clients that leave, and work that does not end by itself,
// through the real server: everyone gets an answer, nothing is kept, and nobody keeps others from a
// lane.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
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

using grpc::StatusCode;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(Overload, AFullQueueRefusesAndSaysWhenToComeBack) {
  CountedServer server(FlagsForHeld({"--lanes_per_device=1", "--queue_limit=2"}));
  Gate gate;
  std::vector<Reply> replies(12);
  std::vector<std::thread> clients;
  for (Reply& reply : replies) {
    clients.emplace_back([&] { reply = Execute(Connect(server.address()), gate.HeldRequest()); });
  }
  // One runs, two wait.
  const std::vector<std::string> full = {"reason=\"queue_requests\""};
  EXPECT_TRUE(
      Eventually([&] { return server.process().Sum("warpcall_rejected_total", full) >= 9; }));
  gate.Open();
  for (std::thread& client : clients) client.join();
  int refused = 0;
  std::vector<Ended> ended;
  for (const Reply& reply : replies) {
    ended.push_back(HeldEnds(reply.status.error_code()));
    if (reply.status.ok()) continue;
    ++refused;
    EXPECT_EQ(reply.status.error_code(), StatusCode::RESOURCE_EXHAUSTED) << reply.CodeAndMessage();
    EXPECT_THAT(reply.status.error_message(), HasSubstr("limit is 2 (queue_limit)"));
    EXPECT_GE(std::atoi(reply.pushback_ms.c_str()), 1) << reply.pushback_ms;
  }
  // All may come before the lane takes one: then two are let in, else three.
  EXPECT_GE(refused, 9);
  EXPECT_LE(refused, 10);
  server.Expect(ended);
  EXPECT_EQ(server.process().Sum("warpcall_rejected_total", full), refused);
  server.ExpectNothingMore();
}

TEST(Overload, WaitingRequestsEndWithTheirDeadlineOrClient) {
  CountedServer server(FlagsForHeld({"--lanes_per_device=1"}));
  Gate gate;  // whatever comes before it opens waits
  PendingCall running(server.process(), gate.HeldRequest());
  EXPECT_TRUE(Eventually([&] { return LaneIsHeld(server.process()); }));
  const std::string small = SmallRequest().SerializeAsString();
  // Clients that leave it to the server to end their calls, far later than they are in the queue.
  constexpr int kLate = 10;
  std::vector<std::unique_ptr<RawHttp2>> late;
  for (int i = 0; i < kLate; ++i) {
    late.push_back(std::make_unique<RawHttp2>(server.address()));
    late.back()->Send(RawHttp2::CallFrames(1, small, "1S"));
  }
  for (const auto& client : late) {
    EXPECT_TRUE(client->AwaitEnd(1));
    EXPECT_THAT(client->headers(), HasSubstr("grpc-status\x01"
                                             "4"));
  }
  server.Expect(std::vector<Ended>(kLate, GeluEnds(StatusCode::DEADLINE_EXCEEDED)));
  {
    RawHttp2 vanishes(server.address());
    vanishes.Send(RawHttp2::CallFrames(1, small));
    EXPECT_TRUE(Eventually([&] { return server.Waiting(1); }));
  }
  server.Expect({GeluEnds(StatusCode::CANCELLED)});
  PendingCall leaves(server.process(), SmallRequest());
  EXPECT_TRUE(Eventually([&] { return server.Waiting(1); }));
  leaves.Cancel();
  EXPECT_EQ(leaves.Code(), StatusCode::CANCELLED);
  server.Expect({GeluEnds(StatusCode::CANCELLED)});
  gate.Open();
  EXPECT_EQ(running.Code(), StatusCode::OK);
  server.Expect({HeldEnds(StatusCode::OK)});
  EXPECT_EQ(server.process().Sum("warpcall_kernel_duration_seconds_count"), 1);
  EXPECT_EQ(server.process().Sum("warpcall_rejected_total", {"reason=\"deadline\""}), kLate);
  server.ExpectNothingMore();
}

// gRPC's clients do so: their clocks reach a deadline before the server's does, since the server
// began to count later, and rounded the timeout up.
TEST(Overload, AClientThatCancelsAtItsDeadlineIsNoneThatWentAway) {
  CountedServer server(FlagsForHeld({"--lanes_per_device=1"}));
  Gate gate;
  PendingCall running(server.process(), gate.HeldRequest());
  EXPECT_TRUE(Eventually([&] { return LaneIsHeld(server.process()); }));
  RawHttp2 client(server.address());
  client.Send(RawHttp2::CallFrames(1, SmallRequest().SerializeAsString(), "4S"));
  EXPECT_TRUE(Eventually([&] { return server.Waiting(1); }));
  // From here on it is 4 s at most; whatever a busy machine adds brings the deadline nearer.
  absl::SleepFor(absl::Milliseconds(3'900));
  client.Close();
  server.Expect({GeluEnds(StatusCode::DEADLINE_EXCEEDED)});
  EXPECT_EQ(server.process().Sum("warpcall_rejected_total", {"reason=\"deadline\""}), 1);
  EXPECT_TRUE(server.process().Logs(
      "error=\"the deadline passed: the client went away before the work began\""));
  EXPECT_THAT(server.process().log(), HasSubstr("code=DEADLINE_EXCEEDED"));
  EXPECT_THAT(server.process().log(), Not(HasSubstr("code=CANCELLED")));
  gate.Open();
  EXPECT_EQ(running.Code(), StatusCode::OK);
  server.Expect({HeldEnds(StatusCode::OK)});
  server.ExpectNothingMore();
}

TEST(Overload, ADeadlineThatPassesDuringTheUploadIsCounted) {
  CountedServer server;
  const std::string message = SmallRequest().SerializeAsString();
  for (int i = 0; i < 20; ++i) {
    RawHttp2 client(server.address());
    const uint32_t stream = client.Call("1n");
    ASSERT_TRUE(client.connected());
    EXPECT_TRUE(client.AwaitEnd(stream));
    EXPECT_THAT(client.headers(), HasSubstr("grpc-status\x01"
                                            "4"));
    client.SendMessagePart(stream, static_cast<uint32_t>(message.size()), message, true);
  }
  EXPECT_TRUE(CallRaw(server.channel(), message).status.ok());
  // gRPC may or may not show such a call to the server before the call ends; gRPC shows most of
  // them, some after their answer.
  double shown = -1;
  EXPECT_TRUE(Eventually([&] {
    const double before = std::exchange(shown, server.process().Sum("warpcall_requests_total") - 1);
    absl::SleepFor(absl::Milliseconds(300));
    return shown == before;
  }));
  EXPECT_LE(shown, 20);
  std::vector<Ended> ended(static_cast<size_t>(shown), {StatusCode::DEADLINE_EXCEEDED});
  ended.push_back(GeluEnds(StatusCode::OK));
  server.Expect(ended);
  EXPECT_EQ(server.process().Sum("warpcall_rejected_total", {"reason=\"deadline\""}), shown);
  EXPECT_EQ(server.process().Sum("warpcall_kernel_duration_seconds_count"), 1);
  server.ExpectNothingMore();
}

constexpr int kNotDrained = 3;

// Number of the endless requests whose kernel ran to an end.
double RanToTheEnd(const ServerProcess& server) {
  return server.Sum("warpcall_kernel_duration_seconds_count", {"kernel=\"held\""});
}

TEST(Limits, WhatTheDrainLeavesEndsWithUnavailableAndIsLogged) {
  ServerProcess server(FlagsForHeld({"--lanes_per_device=1", "--drain_seconds=0.2"}));
  const Gate gate;
  const auto named = [&](absl::string_view id) {
    v1::ExecuteRequest request = gate.HeldRequest();
    request.set_request_id(std::string(id));
    return request;
  };
  PendingCall running(server, named("running"));
  ASSERT_TRUE(Eventually([&] { return LaneIsHeld(server); }));
  PendingCall first(server, named("first")), second(server, named("second")),
      third(server, named("third"));
  ASSERT_TRUE(Eventually([&] { return server.Sum("warpcall_queue_depth") == 3; }));
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
  for (PendingCall* call : {&running, &first, &second, &third}) {
    EXPECT_EQ(call->Code(), grpc::StatusCode::UNAVAILABLE);
    EXPECT_THAT(call->Wait().error_message(), HasSubstr("drain_seconds"));
    EXPECT_EQ(call->pushback_ms(), "1000");
  }
  const grpc::Status ended = stream->Finish();
  EXPECT_EQ(ended.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(ended.error_message(), HasSubstr("drain_seconds"));
  const std::string log = server.log();
  EXPECT_THAT(log, HasSubstr("waiting=3 running=1 streams=1 inspections=0"));
  const size_t last = log.find("msg=\"stopped: drained ");
  for (const char* id : {"running", "first", "second", "third"}) {
    const size_t line =
        log.find(absl::StrCat("level=error msg=\"request failed\" request_id=", id, " "));
    EXPECT_LT(line, last) << log;  // and it is there
  }
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
  client.Send(
      RawHttp2::CallFrames(1, Request("gelu", {FloatTensor(16)}).SerializeAsString(), "99999999H"));
  EXPECT_TRUE(client.AwaitEnd(1));
  EXPECT_THAT(client.headers(), HasSubstr("\x0bgrpc-status\x01"
                                          "0"));
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

}  // namespace
}  // namespace warpcall::testing
