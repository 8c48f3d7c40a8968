// A request that fails, at whatever stage, is counted exactly once: under the code that its client
// should get and under as much of kernel and implementation as was known by then, in
// warpcall_requests_total as in warpcall_request_duration_seconds. (A device that is lost is the
// engine's test: the CPU cannot be.)
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/e2e/eventually.h"
#include "tests/e2e/held_request.h"
#include "tests/e2e/pending_call.h"
#include "tests/e2e/raw_call.h"
#include "tests/e2e/raw_http2.h"
#include "tests/e2e/server_process.h"
#include "warpcall/v1/warpcall.grpc.pb.h"

namespace warpcall::testing {
namespace {

using Counts = std::map<std::string, double>;

struct Ended {
  std::string code;
  std::string kernel = {};
  std::string implementation = {};
};

const Ended kHeldEnds = {"OK", "held", "gated"};

Counts CountsOf(const std::vector<Ended>& requests) {
  Counts counts;
  for (const Ended& request : requests) {
    const std::string labels = absl::StrCat("{kernel=\"", request.kernel, "\",implementation=\"",
                                            request.implementation, "\"");
    ++counts[absl::StrCat("warpcall_requests_total", labels, ",code=\"", request.code, "\"}")];
    ++counts[absl::StrCat("warpcall_request_duration_seconds_count", labels, "}")];
  }
  return counts;
}

// A server whose counts are compared, at every step, with what its clients did.
class CountedServer {
 public:
  explicit CountedServer(const std::vector<std::string>& flags = {})
      : process_(flags), channel_(Connect(process_.address())) {}

  ServerProcess& process() { return process_; }
  const std::string& address() const { return process_.address(); }
  const std::shared_ptr<grpc::Channel>& channel() const { return channel_; }

  // `more` end, perhaps a moment after their clients have seen it, and nothing else does.
  void Expect(const std::vector<Ended>& more, const std::string& what = "") {
    ended_.insert(ended_.end(), more.begin(), more.end());
    const auto total = static_cast<double>(ended_.size());
    EXPECT_TRUE(Eventually([&] { return process_.Sum("warpcall_requests_total") >= total; }))
        << what;
    EXPECT_EQ(Counted(), CountsOf(ended_)) << what;
  }

  // Nothing comes late: all is at rest, and one more request is one more.
  void ExpectNothingMore() {
    EXPECT_TRUE(Eventually([&] {
      return process_.Sum("warpcall_queue_depth") == 0 &&
             process_.Sum("warpcall_staging_bytes", {"state=\"used\""}) == 0;
    }));
    v1::ExecuteRequest request = Request("gelu", {FloatTensor(4)});
    request.set_implementation("reference");
    EXPECT_TRUE(Execute(channel_, request).status.ok());
    Expect({{"OK", "gelu", "float64"}}, "one more");
  }

  bool Waiting(double requests) const { return process_.Sum("warpcall_queue_depth") == requests; }

 private:
  Counts Counted() const {
    Counts counts;
    for (const auto& [series, value] : process_.Metrics()) {
      const bool counts_requests =
          absl::StartsWith(series, "warpcall_requests_total{") ||
          absl::StartsWith(series, "warpcall_request_duration_seconds_count{");
      if (counts_requests && value != 0) counts[series] = value;
    }
    return counts;
  }

  ServerProcess process_;
  std::shared_ptr<grpc::Channel> channel_;
  std::vector<Ended> ended_;
};

v1::ExecuteRequest SmallRequest() {
  v1::ExecuteRequest request = Request("gelu", {FloatTensor(4)});
  request.set_implementation("reference");
  return request;
}

v1::ExecuteRequest Changed(const std::function<void(v1::ExecuteRequest*)>& change) {
  v1::ExecuteRequest request = SmallRequest();
  change(&request);
  return request;
}

TEST(CountOnce, WhatIsRefusedOnArrival) {
  const struct {
    const char* what;
    std::string message;
    Ended ended;
  } kCases[] = {
      {"undecodable", "\xff", {"INVALID_ARGUMENT"}},
      {"message over the limit",
       // A MiB of tensor data, and 64 KiB beside them, would do.
       Request("gelu", {FloatTensor((1 << 18) + (1 << 14))}).SerializeAsString(),
       {"RESOURCE_EXHAUSTED"}},
      {"request id",
       Changed([](auto* r) { r->set_request_id(std::string(257, 'r')); }).SerializeAsString(),
       {"INVALID_ARGUMENT"}},
      {"kernel",
       Changed([](auto* r) { r->set_kernel("nope"); }).SerializeAsString(),
       {"NOT_FOUND"}},
      {"implementation",
       Changed([](auto* r) { r->set_implementation("nope"); }).SerializeAsString(),
       {"NOT_FOUND", "gelu"}},
      {"device",
       Changed([](auto* r) { r->set_device("cuda:9"); }).SerializeAsString(),
       {"NOT_FOUND", "gelu"}},
      {"shape",
       Changed([](auto* r) { r->mutable_inputs(0)->set_shape(0, -4); }).SerializeAsString(),
       {"INVALID_ARGUMENT", "gelu"}},
      {"byte length",
       Changed([](auto* r) { r->mutable_inputs(0)->set_shape(0, 5); }).SerializeAsString(),
       {"INVALID_ARGUMENT", "gelu"}},
      {"attribute",
       Changed([](auto* r) {
         (*r->mutable_attributes())["approximate"].set_string_value("cubic");
       }).SerializeAsString(),
       {"INVALID_ARGUMENT", "gelu"}},
      {"no row",
       Changed([](auto* r) {
         *r->mutable_inputs(0) = FloatTensor({2}, {1, 2});
         r->mutable_inputs(0)->set_data_type(v1::DATA_TYPE_FLOAT16);
         r->mutable_inputs(0)->mutable_data()->resize(4);
         r->set_implementation("library");
       }).SerializeAsString(),
       {"UNIMPLEMENTED", "gelu"}},
      {"output over the limit",
       Changed([](auto* r) {
         *r = LargeAnswerRequest();
         r->set_implementation("reference");
       }).SerializeAsString(),
       {"RESOURCE_EXHAUSTED", "matmul", "float64"}},
  };
  CountedServer server({"--max_message_mib=1"});
  for (const auto& refused : kCases) {
    const Reply reply = CallRaw(server.channel(), refused.message);
    EXPECT_FALSE(reply.status.ok()) << refused.what;
    server.Expect({refused.ended}, refused.what);
  }
  server.ExpectNothingMore();
}

TEST(CountOnce, ARequestLargerThanStaging) {
  CountedServer server({"--staging_mib=1"});
  v1::ExecuteRequest request = Request("identity", {FloatTensor(1 << 18)});
  request.set_implementation("reference");
  EXPECT_EQ(Execute(server.channel(), request).status.error_code(),
            grpc::StatusCode::RESOURCE_EXHAUSTED);
  server.Expect({{"RESOURCE_EXHAUSTED", "identity", "plain_copy"}});
  server.ExpectNothingMore();
}

TEST(CountOnce, AQueueThatIsFull) {
  CountedServer server(FlagsForHeld({"--lanes_per_device=1", "--queue_limit=1"}));
  Gate gate;
  PendingCall running(server.process(), gate.HeldRequest());
  ASSERT_TRUE(Eventually([&] { return LaneIsHeld(server.process()); }));
  PendingCall waiting(server.process(), SmallRequest());
  ASSERT_TRUE(Eventually([&] { return server.Waiting(1); }));
  EXPECT_EQ(Execute(server.channel(), SmallRequest()).status.error_code(),
            grpc::StatusCode::RESOURCE_EXHAUSTED);
  server.Expect({{"RESOURCE_EXHAUSTED", "gelu", "float64"}});
  gate.Open();
  EXPECT_EQ(running.Code(), grpc::StatusCode::OK);
  EXPECT_EQ(waiting.Code(), grpc::StatusCode::OK);
  server.Expect({kHeldEnds, {"OK", "gelu", "float64"}});
  server.ExpectNothingMore();
}

TEST(CountOnce, ADeadlineThatPassesBeforeTheMessageHasCome) {
  CountedServer server;
  const std::string message = SmallRequest().SerializeAsString();
  for (int i = 0; i < 20; ++i) {
    RawHttp2 client(server.process().address());
    const uint32_t stream = client.Call("1n");
    client.AwaitEnd(stream);
    client.SendMessagePart(stream, static_cast<uint32_t>(message.size()), message, true);
  }
  EXPECT_TRUE(Execute(server.channel(), SmallRequest()).status.ok());
  // Whether gRPC shows such a call to anyone before it ends it is its choice.
  const double shown = server.process().Sum("warpcall_requests_total") - 1;
  std::vector<Ended> ended(static_cast<size_t>(shown), {"DEADLINE_EXCEEDED"});
  EXPECT_LE(shown, 20);
  ended.push_back({"OK", "gelu", "float64"});
  server.Expect(ended);
  server.ExpectNothingMore();
}

// The server knows how long such requests take once it has seen four: here for as long as it says
// itself that its device was busy.
TEST(CountOnce, ADeadlineThatCannotBeMet) {
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
    EXPECT_EQ(calls[i]->Code(), grpc::StatusCode::OK);
    server.Expect({kHeldEnds});
  }
  // A client that leaves it to the server to judge.
  RawHttp2 client(server.address());
  client.Send(RawHttp2::CallFrames(1, gates[0].HeldRequest().SerializeAsString(), "2S"));
  EXPECT_TRUE(client.AwaitEnd(1));
  server.Expect({{"DEADLINE_EXCEEDED", "held", "gated"}});
  EXPECT_EQ(server.process().Sum("warpcall_rejected_total", {"reason=\"deadline_unmeetable\""}), 1);
  server.ExpectNothingMore();
}

TEST(CountOnce, ADeadlineThatPassesInTheQueue) {
  CountedServer server(FlagsForHeld({"--lanes_per_device=1"}));
  Gate gate;
  PendingCall running(server.process(), gate.HeldRequest());
  ASSERT_TRUE(Eventually([&] { return LaneIsHeld(server.process()); }));
  // A client that leaves it to the server to end the call, and comes into the queue long before.
  RawHttp2 client(server.address());
  client.Send(RawHttp2::CallFrames(1, SmallRequest().SerializeAsString(), "1S"));
  EXPECT_TRUE(client.AwaitEnd(1));
  server.Expect({{"DEADLINE_EXCEEDED", "gelu", "float64"}});
  gate.Open();
  EXPECT_EQ(running.Code(), grpc::StatusCode::OK);
  server.Expect({kHeldEnds});
  server.ExpectNothingMore();
}

TEST(CountOnce, AClientThatLeavesWhileItsRequestWaitsOrRuns) {
  CountedServer server(FlagsForHeld({"--lanes_per_device=1"}));
  Gate gate;
  PendingCall running(server.process(), gate.HeldRequest());
  ASSERT_TRUE(Eventually([&] { return LaneIsHeld(server.process()); }));
  PendingCall waiting(server.process(), SmallRequest());
  ASSERT_TRUE(Eventually([&] { return server.Waiting(1); }));
  waiting.Cancel();
  EXPECT_EQ(waiting.Code(), grpc::StatusCode::CANCELLED);
  server.Expect({{"CANCELLED", "gelu", "float64"}});
  running.Cancel();
  EXPECT_EQ(running.Code(), grpc::StatusCode::CANCELLED);
  server.Expect({{"CANCELLED", "held", "gated"}});
  server.ExpectNothingMore();
}

TEST(CountOnce, AServerThatDrains) {
  CountedServer server(FlagsForHeld({"--drain_seconds=600"}));
  Gate gate;
  PendingCall running(server.process(), gate.HeldRequest());
  ASSERT_TRUE(Eventually([&] { return LaneIsHeld(server.process()); }));
  server.process().Signal(SIGTERM);
  ASSERT_TRUE(
      Eventually([&] { return absl::StrContains(server.process().log(), "msg=draining"); }));
  EXPECT_EQ(Execute(server.channel(), SmallRequest()).status.error_code(),
            grpc::StatusCode::UNAVAILABLE);
  server.Expect({{"UNAVAILABLE", "gelu", "float64"}});
  gate.Open();
  EXPECT_EQ(running.Code(), grpc::StatusCode::OK);
  EXPECT_EQ(server.process().Wait(), 0);
}

// One ExecuteStream call with one request.
class Stream {
 public:
  // `timeout` as in "50m"; the client itself waits on, so that it is the server that ends the call.
  explicit Stream(const CountedServer& server, const char* timeout = nullptr)
      : stub_(v1::KernelService::NewStub(server.channel())) {
    if (timeout != nullptr) context_.AddMetadata("grpc-timeout", timeout);
    stream_ = stub_->ExecuteStream(&context_);
  }

  void SendHeader(const std::string& kernel) {
    v1::ExecuteStreamRequest message;
    *message.mutable_header() = SmallRequest();
    message.mutable_header()->set_kernel(kernel);
    message.mutable_header()->mutable_inputs(0)->clear_data();
    stream_->Write(message);
  }
  void SendChunk(int64_t offset, size_t bytes) {
    v1::ExecuteStreamRequest message;
    message.mutable_chunk()->set_offset(offset);
    message.mutable_chunk()->set_data(std::string(bytes, '\0'));
    stream_->Write(message);
  }
  bool Receive() {
    v1::ExecuteStreamResponse message;
    return stream_->Read(&message);
  }
  void Cancel() { context_.TryCancel(); }
  grpc::StatusCode Finish() {
    stream_->WritesDone();
    while (Receive()) {
    }
    return stream_->Finish().error_code();
  }

 private:
  std::unique_ptr<v1::KernelService::Stub> stub_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::ExecuteStreamRequest, v1::ExecuteStreamResponse>>
      stream_;
};

TEST(CountOnce, StreamsWithMistakes) {
  const struct {
    const char* what;
    std::function<void(Stream*)> send;
    Ended ended;
  } kCases[] = {
      {"none",
       [](Stream* s) { s->SendHeader("gelu"), s->SendChunk(0, 16); },
       {"OK", "gelu", "float64"}},
      {"no header", [](Stream* s) { s->SendChunk(0, 16); }, {"INVALID_ARGUMENT"}},
      {"a header that is wrong", [](Stream* s) { s->SendHeader("nope"); }, {"NOT_FOUND"}},
      {"a chunk beyond the tensor",
       [](Stream* s) { s->SendHeader("gelu"), s->SendChunk(4, 16); },
       {"INVALID_ARGUMENT", "gelu", "float64"}},
      {"an end that is too early",
       [](Stream* s) { s->SendHeader("gelu"), s->SendChunk(0, 8); },
       {"INVALID_ARGUMENT", "gelu", "float64"}},
  };
  CountedServer server;
  for (const auto& mistake : kCases) {
    Stream stream(server);
    mistake.send(&stream);
    EXPECT_EQ(stream.Finish() == grpc::StatusCode::OK, mistake.ended.code == "OK") << mistake.what;
    server.Expect({mistake.ended}, mistake.what);
  }
  server.ExpectNothingMore();
}

TEST(CountOnce, AStreamWhoseClientLeavesMidway) {
  CountedServer server;
  Stream stream(server);
  stream.SendHeader("gelu");
  ASSERT_TRUE(stream.Receive());  // the header of the answer: the request has begun
  stream.SendChunk(0, 8);
  stream.Cancel();
  EXPECT_EQ(stream.Finish(), grpc::StatusCode::CANCELLED);
  server.Expect({{"CANCELLED", "gelu", "float64"}});
  server.ExpectNothingMore();
}

TEST(CountOnce, AStreamWhoseDeadlinePassesMidway) {
  CountedServer server;
  Stream stream(server, "2S");  // far more than it takes to begin
  stream.SendHeader("gelu");
  ASSERT_TRUE(stream.Receive());
  stream.SendChunk(0, 8);
  EXPECT_FALSE(stream.Receive());
  EXPECT_NE(stream.Finish(), grpc::StatusCode::OK);
  server.Expect({{"DEADLINE_EXCEEDED", "gelu", "float64"}});
  server.ExpectNothingMore();
}

// Between two requests a stream may end as its client likes: no request fails.
TEST(CountOnce, AStreamThatEndsBetweenRequests) {
  CountedServer server;
  Stream stream(server);
  stream.SendHeader("gelu");
  stream.SendChunk(0, 16);
  for (int message = 0; message < 3; ++message) ASSERT_TRUE(stream.Receive());  // up to its end
  stream.Cancel();
  EXPECT_EQ(stream.Finish(), grpc::StatusCode::CANCELLED);
  server.Expect({{"OK", "gelu", "float64"}});
  server.ExpectNothingMore();
}

}  // namespace
}  // namespace warpcall::testing
