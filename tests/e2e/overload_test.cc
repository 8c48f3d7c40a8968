// More work than the server takes, and clients that leave: everyone gets an answer, and nothing is
// kept.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "tests/e2e/counted_server.h"
#include "tests/e2e/eventually.h"
#include "tests/e2e/held_request.h"
#include "tests/e2e/pending_call.h"
#include "tests/e2e/raw_call.h"
#include "tests/e2e/raw_http2.h"

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

TEST(Overload, AFullQueueInBytesRefuses) {
  CountedServer server(FlagsForHeld({"--lanes_per_device=1", "--queue_mib=1"}));
  Gate gate;
  PendingCall running(server.process(), gate.HeldRequest());
  EXPECT_TRUE(Eventually([&] { return LaneIsHeld(server.process()); }));
  // One such request fits into a MiB, two do not.
  v1::ExecuteRequest request = Request("gelu", {FloatTensor(200'000)});
  request.set_implementation("reference");
  PendingCall waiting(server.process(), request);
  EXPECT_TRUE(Eventually([&] { return server.Waiting(1); }));
  const Reply refused = server.Send(request, GeluEnds(StatusCode::RESOURCE_EXHAUSTED));
  EXPECT_THAT(refused.status.error_message(), HasSubstr("1048576 bytes (queue_mib)"));
  gate.Open();
  EXPECT_EQ(running.Code(), StatusCode::OK);
  EXPECT_EQ(waiting.Code(), StatusCode::OK);
  server.Expect({HeldEnds(StatusCode::OK), GeluEnds(StatusCode::OK)});
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

// The server knows the time of such requests once it has seen four: here as long as the device was
// busy by its own figures.
TEST(Overload, ADeadlineThatCannotBeMetIsRefused) {
  CountedServer server(FlagsForHeld({"--lanes_per_device=4"}));
  std::array<Gate, 4> gates;
  std::vector<std::unique_ptr<PendingCall>> calls;
  for (const Gate& gate : gates)
    calls.push_back(std::make_unique<PendingCall>(server.process(), gate.HeldRequest()));
  const auto busy_seconds = [&] {
    return server.process().Sum("warpcall_device_busy_seconds_total");
  };
  // Each has its lane and three pages of staging.
  ASSERT_TRUE(Eventually([&] {
    return server.process().Sum("warpcall_staging_bytes", {"state=\"used\""}) == 4 * 2 * 4096;
  }));
  const double all_held = busy_seconds();
  ASSERT_TRUE(Eventually([&] { return busy_seconds() > all_held + 3; }));
  for (size_t i = 0; i < gates.size(); ++i) {
    gates[i].Open();
    EXPECT_EQ(calls[i]->Code(), StatusCode::OK);
    server.Expect({HeldEnds(StatusCode::OK)});
  }
  // A client that leaves it to the server to judge.
  RawHttp2 client(server.address());
  client.Send(RawHttp2::CallFrames(1, gates[0].HeldRequest().SerializeAsString(), "2S"));
  EXPECT_TRUE(client.AwaitEnd(1));
  server.Expect({HeldEnds(StatusCode::DEADLINE_EXCEEDED)});
  EXPECT_EQ(server.process().Sum("warpcall_rejected_total", {"reason=\"deadline_unmeetable\""}), 1);
  server.ExpectNothingMore();
}

TEST(Overload, StagingThatIsTooSmallRefusesOnlyWhatDoesNotFit) {
  CountedServer server({"--staging_mib=1", "--max_message_mib=1"});
  v1::ExecuteRequest request = Request("gelu", {FloatTensor(1 << 18)});
  request.set_implementation("reference");
  const Reply reply = server.Send(request, GeluEnds(StatusCode::RESOURCE_EXHAUSTED));
  EXPECT_THAT(reply.status.error_message(), HasSubstr("1048576 bytes (staging_mib)"));
  EXPECT_EQ(reply.pushback_ms, "-1");
  EXPECT_EQ(server.process().Sum("warpcall_rejected_total", {"reason=\"staging_bytes\""}), 1);
  *request.mutable_inputs(0) = FloatTensor(1 << 16);
  server.Send(request, GeluEnds(StatusCode::OK));
  server.ExpectNothingMore();
}

}  // namespace
}  // namespace warpcall::testing
