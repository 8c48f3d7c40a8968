// More work than the server takes, and clients that leave: everyone gets an answer, and nothing is
// kept.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "tests/e2e/eventually.h"
#include "tests/e2e/held_request.h"
#include "tests/e2e/pending_call.h"
#include "tests/e2e/raw_call.h"
#include "tests/e2e/raw_http2.h"
#include "tests/e2e/server_process.h"

namespace warpcall::testing {
namespace {

using ::testing::HasSubstr;

// Calls `message` from as many connections at once, whose deadline passes while they wait, and
// which leave it to the server to see that. Far more time than they take into the queue.
void ExpectDeadlinesPass(const ServerProcess& server, int count, const std::string& message) {
  std::vector<std::unique_ptr<RawHttp2>> clients;
  for (int i = 0; i < count; ++i) {
    clients.push_back(std::make_unique<RawHttp2>(server.address()));
    clients.back()->Send(RawHttp2::CallFrames(1, message, "1S"));
  }
  for (const auto& client : clients) {
    EXPECT_TRUE(client->AwaitEnd(1));
    EXPECT_THAT(client->headers(), HasSubstr("grpc-status\x01"
                                             "4"));
  }
  EXPECT_TRUE(Eventually([&] {
    return server.Sum("warpcall_requests_total", {"code=\"DEADLINE_EXCEEDED\""}) == count;
  })) << server.Get("/metrics").second;
}

TEST(Overload, AFullQueueRefusesAndSaysWhenToComeBack) {
  ServerProcess server(FlagsForHeld({"--lanes_per_device=1", "--queue_limit=2"}));
  Gate gate;
  std::vector<Reply> replies(12);
  std::vector<std::thread> clients;
  for (Reply& reply : replies) {
    clients.emplace_back([&] { reply = Execute(Connect(server.address()), gate.HeldRequest()); });
  }
  // One runs, two wait.
  EXPECT_TRUE(Eventually(
      [&] { return server.Sum("warpcall_rejected_total", {"reason=\"queue_requests\""}) >= 9; }));
  gate.Open();
  for (std::thread& client : clients) client.join();
  int refused = 0;
  for (const Reply& reply : replies) {
    if (reply.status.ok()) continue;
    ++refused;
    EXPECT_EQ(reply.status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED)
        << reply.CodeAndMessage();
    EXPECT_THAT(reply.status.error_message(), HasSubstr("limit is 2 (queue_limit)"));
    EXPECT_GE(std::atoi(reply.pushback_ms.c_str()), 1) << reply.pushback_ms;
  }
  // All may come before the lane takes one: then two are let in, else three.
  EXPECT_GE(refused, 9);
  EXPECT_LE(refused, 10);
  EXPECT_EQ(server.Sum("warpcall_requests_total", {"code=\"OK\""}), 12 - refused);
  EXPECT_EQ(server.Sum("warpcall_rejected_total", {"reason=\"queue_requests\""}), refused);
  EXPECT_EQ(server.Sum("warpcall_queue_depth"), 0);
  EXPECT_EQ(server.Stop(), 0);
}

TEST(Overload, AFullQueueInBytesRefuses) {
  ServerProcess server(FlagsForHeld({"--lanes_per_device=1", "--queue_mib=1"}));
  Gate gate;
  PendingCall running(server, gate.HeldRequest());
  EXPECT_TRUE(Eventually([&] { return LaneIsHeld(server); }));
  // A MiB holds one of them, but not two.
  const v1::ExecuteRequest request = Request("identity", {FloatTensor(200'000)});
  PendingCall waiting(server, request);
  EXPECT_TRUE(Eventually([&] { return server.Sum("warpcall_queue_depth") == 1; }));
  const Reply refused = Execute(Connect(server.address()), request);
  EXPECT_EQ(refused.status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(refused.status.error_message(), HasSubstr("1048576 bytes (queue_mib)"));
  gate.Open();
  EXPECT_EQ(running.Code(), grpc::StatusCode::OK);
  EXPECT_EQ(waiting.Code(), grpc::StatusCode::OK);
  EXPECT_EQ(server.Stop(), 0);
}

TEST(Overload, WaitingRequestsEndWithTheirDeadlineOrClient) {
  ServerProcess server(FlagsForHeld({"--lanes_per_device=1"}));
  Gate gate;  // whatever comes before it opens waits
  PendingCall running(server, gate.HeldRequest());
  EXPECT_TRUE(Eventually([&] { return LaneIsHeld(server); }));
  const std::string small = Request("gelu", {FloatTensor(4)}).SerializeAsString();
  ExpectDeadlinesPass(server, 1, small);
  {
    RawHttp2 leaves(server.address());
    leaves.Send(RawHttp2::CallFrames(1, small));
    EXPECT_TRUE(Eventually([&] { return server.Sum("warpcall_queue_depth") == 1; }));
  }
  EXPECT_TRUE(Eventually(
      [&] { return server.Sum("warpcall_requests_total", {"code=\"CANCELLED\""}) == 1; }));
  EXPECT_EQ(server.Sum("warpcall_queue_depth"), 0);
  EXPECT_EQ(server.Sum("warpcall_requests_total"), 2);
  gate.Open();
  EXPECT_EQ(running.Code(), grpc::StatusCode::OK);
  EXPECT_EQ(server.Sum("warpcall_requests_total", {"code=\"OK\""}), 1);
  EXPECT_EQ(server.Sum("warpcall_kernel_duration_seconds_count"), 1);
  EXPECT_TRUE(
      Eventually([&] { return server.Sum("warpcall_staging_bytes", {"state=\"used\""}) == 0; }));
  EXPECT_EQ(server.Stop(), 0);
}

TEST(Overload, ADeadlineThatPassesDuringTheUploadIsCounted) {
  ServerProcess server;
  const v1::ExecuteRequest request = Request("gelu", {FloatTensor(4)});
  const std::string message = request.SerializeAsString();
  for (int i = 0; i < 20; ++i) {
    RawHttp2 client(server.address());
    const uint32_t stream = client.Call("1n");
    ASSERT_TRUE(client.connected());
    EXPECT_TRUE(client.AwaitEnd(stream));
    EXPECT_THAT(client.headers(), HasSubstr("grpc-status\x01"
                                            "4"));
    client.SendMessagePart(stream, static_cast<uint32_t>(message.size()), message, true);
  }
  EXPECT_TRUE(Execute(Connect(server.address()), request).status.ok());
  // Whether gRPC shows such a call to anyone before it ends it is its choice; most it does.
  const std::vector<std::string> late = {"code=\"DEADLINE_EXCEEDED\""};
  const double counted = server.Sum("warpcall_requests_total");
  EXPECT_LE(counted, 21);
  EXPECT_EQ(server.Sum("warpcall_requests_total", late), counted - 1);
  EXPECT_EQ(server.Sum("warpcall_rejected_total", {"reason=\"deadline\""}), counted - 1);
  EXPECT_EQ(server.Sum("warpcall_kernel_duration_seconds_count"), 1);
  EXPECT_EQ(server.Stop(), 0);
}

TEST(Overload, DeadlinesThatPassInTheQueueAreRefusedBeforeTheWork) {
  ServerProcess server(FlagsForHeld({"--lanes_per_device=1"}));
  Gate gate;
  PendingCall running(server, gate.HeldRequest());
  EXPECT_TRUE(Eventually([&] { return LaneIsHeld(server); }));
  constexpr int kLate = 10;
  ExpectDeadlinesPass(server, kLate, Request("gelu", {FloatTensor(4)}).SerializeAsString());
  EXPECT_EQ(server.Sum("warpcall_requests_total"), kLate);
  gate.Open();
  EXPECT_EQ(running.Code(), grpc::StatusCode::OK);
  EXPECT_EQ(server.Sum("warpcall_rejected_total", {"reason=\"deadline\""}), kLate);
  EXPECT_EQ(server.Sum("warpcall_requests_total"), kLate + 1);
  EXPECT_EQ(server.Sum("warpcall_kernel_duration_seconds_count"), 1);
  EXPECT_EQ(server.Stop(), 0);
}

TEST(Overload, ClientsThatVanishInTheMiddleLeaveNothing) {
  ServerProcess server;
  const std::string message = Request("gelu", {FloatTensor(1 << 18)}).SerializeAsString();
  for (size_t bytes : {size_t{0}, size_t{1}, size_t{100}, size_t{10'000}}) {
    for (int i = 0; i < 25; ++i) {
      RawHttp2 client(server.address());
      client.SendMessagePart(client.Call(), static_cast<uint32_t>(message.size()),
                             message.substr(0, bytes), false);
      EXPECT_TRUE(client.connected());
    }
  }
  const auto channel = Connect(server.address());
  EXPECT_TRUE(CallRaw(channel, message).status.ok());
  EXPECT_EQ(server.Sum("warpcall_requests_total", {"code=\"OK\""}), 1);
  EXPECT_TRUE(
      Eventually([&] { return server.Sum("warpcall_staging_bytes", {"state=\"used\""}) == 0; }));
  EXPECT_EQ(server.Stop(), 0);
}

TEST(Overload, StagingThatIsTooSmallRefusesOnlyWhatDoesNotFit) {
  ServerProcess server({"--staging_mib=1"});
  const auto channel = Connect(server.address());
  const Reply reply = Execute(channel, Request("identity", {FloatTensor(1 << 18)}));
  EXPECT_EQ(reply.status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(reply.status.error_message(), HasSubstr("1048576 bytes (staging_mib)"));
  EXPECT_EQ(reply.pushback_ms, "-1");
  EXPECT_TRUE(Execute(channel, Request("identity", {FloatTensor(1 << 16)})).status.ok());
  EXPECT_EQ(server.Sum("warpcall_rejected_total", {"reason=\"staging_bytes\""}), 1);
  EXPECT_EQ(server.Stop(), 0);
}

}  // namespace
}  // namespace warpcall::testing
