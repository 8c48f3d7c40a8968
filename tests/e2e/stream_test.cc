// ExecuteStream through the real server, as generated code speaks it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <csignal>
#include <map>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "tests/e2e/counted_server.h"
#include "tests/e2e/eventually.h"
#include "tests/e2e/held_request.h"
#include "tests/e2e/pending_call.h"
#include "tests/e2e/raw_call.h"
#include "tests/e2e/server_process.h"
#include "tests/e2e/stream_call.h"
#include "warpcall/v1/warpcall.grpc.pb.h"

namespace warpcall::testing {
namespace {

using ::testing::HasSubstr;

std::string Data(size_t bytes) {
  const v1::Tensor tensor = FloatTensor(static_cast<int64_t>(bytes / 4));
  return tensor.data();
}

// Sends `data` as chunks of `chunk_bytes` while the answer is read.
Answer Call(Stream* stream, const v1::ExecuteStreamRequest& header, const std::string& data,
            size_t chunk_bytes) {
  Answer answer;
  std::thread sender([&] {
    stream->Send(header);
    stream->SendChunks(data, 0, data.size(), chunk_bytes);
  });
  EXPECT_TRUE(stream->Receive(&answer));
  sender.join();
  return answer;
}

TEST(StreamTest, ComesBackAsExecuteComputesItWhateverTheChunks) {
  ServerProcess server({"--lanes_per_device=1"});  // phases of windows do not overlap
  const std::string data = Data(5 * 1023 * 1021 * 4);
  for (const char* kernel : {"identity", "gelu", "softmax"}) {
    v1::ExecuteRequest whole = Request(kernel, {FloatTensor(0)});
    whole.mutable_inputs(0)->clear_shape();
    for (const int64_t dim : {5, 1023, 1021}) whole.mutable_inputs(0)->add_shape(dim);
    whole.mutable_inputs(0)->set_data(data);
    const Reply expected = Execute(Connect(server.address()), whole);
    ASSERT_TRUE(expected.status.ok()) << expected.CodeAndMessage();
    for (const size_t chunk_bytes : {size_t{999'999}, size_t{2 * kMib}, size_t{16 * kMib}}) {
      Stream stream(server);
      const Answer answer = Call(&stream, Header(kernel, {5, 1023, 1021}), data, chunk_bytes);
      stream.CloseInput();
      EXPECT_TRUE(stream.Finish().ok());
      EXPECT_EQ(answer.output == expected.response.outputs(0).data(), true) << kernel;
      EXPECT_EQ(answer.received_bytes, static_cast<int64_t>(data.size()));
      ASSERT_EQ(answer.header.outputs_size(), 1);
      EXPECT_THAT(answer.header.outputs(0).shape(), ::testing::ElementsAre(5, 1023, 1021));
      EXPECT_EQ(answer.header.outputs(0).data(), "");
      EXPECT_EQ(answer.header.implementation(), answer.done.implementation());
      EXPECT_EQ(answer.done.implementation(), expected.response.implementation());
      EXPECT_GT(answer.done.timing().kernel_ns(), 0);
      EXPECT_GT(answer.done.timing().total_ns(), answer.done.timing().copy_in_ns());
      EXPECT_EQ(answer.done.launch().bytes_moved(), expected.response.launch().bytes_moved());
    }
  }
  EXPECT_EQ(server.Sum("warpcall_requests_total", {"code=\"OK\""}), 12);
  EXPECT_EQ(server.Sum("warpcall_host_copy_bytes_total", {"where=\"copy_in\""}),
            12.0 * static_cast<double>(data.size()));
  // An answer's staging goes back once it is sent; its client may have it earlier.
  EXPECT_TRUE(
      Eventually([&] { return server.Sum("warpcall_staging_bytes", {"state=\"used\""}) == 0; }));
  EXPECT_EQ(server.Stop(), 0);
}

TEST(StreamTest, ResultsComeBeforeTheRequestHasEnded) {
  ServerProcess server;
  Stream stream(server);
  const std::string data = Data(64 * kMib);
  stream.Send(Header("gelu", {16 << 20}));
  // A quarter: a server that is not read takes no more than a few windows.
  stream.SendChunks(data, 0, data.size() / 4, 2 * kMib);
  v1::ExecuteStreamResponse message;
  ASSERT_TRUE(stream.Receive(&message));
  EXPECT_TRUE(message.has_header());
  int64_t received = 0;
  while (received < int64_t{8} << 20 && stream.Receive(&message)) {
    EXPECT_EQ(message.chunk().offset(), received);
    received += static_cast<int64_t>(message.chunk().data().size());
  }
  EXPECT_GE(received, int64_t{8} << 20);
  stream.Cancel();
  EXPECT_EQ(stream.Finish().error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_EQ(server.Stop(), 0);
}

TEST(StreamTest, OneStreamCarriesManyRequests) {
  ServerProcess server;
  Stream stream(server);
  for (const int64_t elements : {0, 1, 1000, 1 << 20, 3 << 20}) {
    const std::string data = Data(static_cast<size_t>(elements) * 4);
    const Answer answer = Call(&stream, Header("identity", {elements}), data, kMib);
    EXPECT_EQ(answer.output == data, true) << elements;
    stream.Send(ChunkOf(elements * 4, ""));  // adds nothing to a complete tensor
  }
  // Sent without waiting for the answers in between.
  for (int i = 0; i < 3; ++i) {
    stream.Send(Header("identity", {1000}));
    stream.Send(ChunkOf(0, Data(4000)));
  }
  stream.CloseInput();
  for (int i = 0; i < 3; ++i) {
    Answer answer;
    EXPECT_TRUE(stream.Receive(&answer));
    EXPECT_EQ(answer.output, Data(4000));
  }
  EXPECT_TRUE(stream.Finish().ok());
  EXPECT_EQ(server.Sum("warpcall_requests_total", {"code=\"OK\""}), 8);
  EXPECT_EQ(server.Stop(), 0);
}

// Whole requests of identity; nothing is read.
void SendRequests(Stream* stream, int requests, const std::string& data) {
  const auto elements = static_cast<int64_t>(data.size() / 4);
  for (int i = 0; i < requests; ++i) {
    stream->Send(Header("identity", {elements}));
    stream->SendChunks(data, 0, data.size(), 4 * kMib);
  }
}

TEST(StreamTest, ResultsOfWholeRequestsComeBeforeTheFailureOfTheNext) {
  ServerProcess server;
  constexpr int kRequests = 4;
  for (const size_t bytes : {size_t{4000}, size_t{4 * kMib}}) {
    const std::string data = Data(bytes);
    for (int i = 0; i < 5; ++i) {
      Stream stream(server);
      std::thread sender([&] {
        SendRequests(&stream, kRequests, data);
        stream.Send(Header("no_such_kernel", {1}));
      });
      for (int request = 0; request < kRequests; ++request) {
        Answer answer;
        EXPECT_TRUE(stream.Receive(&answer)) << request << " of " << bytes << " bytes";
        EXPECT_TRUE(answer.output == data);
      }
      sender.join();
      EXPECT_EQ(stream.AwaitRefusal().error_code(), grpc::StatusCode::NOT_FOUND);
    }
  }
  EXPECT_EQ(server.Sum("warpcall_requests_total", {"code=\"OK\""}), 2 * 5 * kRequests);
  EXPECT_EQ(server.Stop(), 0);
}

TEST(StreamTest, ResultsThatNobodyReadsKeepNobodyWaiting) {
  const std::string data = Data(4 * kMib);
  for (const bool fails : {false, true}) {
    ServerProcess server({"--drain_seconds=1"});
    const auto staging_used = [&] {
      return server.Sum("warpcall_staging_bytes", {"state=\"used\""});
    };
    const auto send = [&](Stream* stream) {
      const double ended = server.Sum("warpcall_requests_total");
      SendRequests(stream, 1, data);
      if (fails) stream->Send(Header("no_such_kernel", {1}));
      EXPECT_TRUE(Eventually(
          [&] { return server.Sum("warpcall_requests_total") >= ended + (fails ? 2 : 1); }));
      EXPECT_GT(staging_used(), 0);
    };
    Stream cancelled(server);
    send(&cancelled);
    cancelled.Cancel();
    EXPECT_EQ(cancelled.Finish().error_code(), grpc::StatusCode::CANCELLED);
    EXPECT_TRUE(Eventually([&] { return staging_used() == 0; }));
    Stream open(server);
    send(&open);
    EXPECT_EQ(server.Stop(), 3) << fails;  // its response was not sent
  }
}

// Header of a gelu request by the reference, 4000 bytes.
v1::ExecuteStreamRequest SmallHeader() {
  v1::ExecuteStreamRequest message;
  *message.mutable_header() = SmallRequest();
  *message.mutable_header()->mutable_inputs() = Header("", {1000}).header().inputs();
  return message;
}

TEST(StreamTest, EveryMistakeHasItsCodeAndIsCountedOnce) {
  const std::string data = Data(4000);
  const Ended invalid = GeluEnds(grpc::StatusCode::INVALID_ARGUMENT);
  const Ended unread = {grpc::StatusCode::INVALID_ARGUMENT};
  v1::ExecuteStreamRequest with_data = SmallHeader();
  with_data.mutable_header()->mutable_inputs(0)->set_data(data);
  const struct {
    std::vector<v1::ExecuteStreamRequest> messages;
    Ended ended;
    std::string message;
  } kRefusals[] = {
      {{v1::ExecuteStreamRequest()}, unread, "neither a header nor a chunk"},
      {{ChunkOf(0, data)}, unread, "before the header"},
      {{Header("gelo", {1})}, {grpc::StatusCode::NOT_FOUND}, "gelu"},
      {{with_data},
       {grpc::StatusCode::INVALID_ARGUMENT, "gelu"},
       "4000 bytes of data in the header"},
      {{SmallHeader(), ChunkOf(0, data, 1)}, invalid, "input 1; the kernel has 1"},
      {{SmallHeader(), ChunkOf(4, data)}, invalid, "does not lie in the tensor's 4000 bytes"},
      {{SmallHeader(), ChunkOf(-4, "abcd")}, invalid, "offset -4"},
      {{SmallHeader(), ChunkOf(0, data.substr(0, 100)), ChunkOf(96, data.substr(96, 10))},
       invalid,
       "bytes 96 to 105 come in part or whole for the second time"},
      {{SmallHeader(), ChunkOf(0, data.substr(0, 3999))},
       invalid,
       "input 0 lacks byte 3999 of 4000"},
      {{SmallHeader(), SmallHeader()}, invalid, "input 0 lacks byte 0 of 4000"},
  };
  CountedServer server;
  for (const auto& refusal : kRefusals) {
    Stream stream(server.process());
    for (const v1::ExecuteStreamRequest& message : refusal.messages) stream.Send(message);
    stream.CloseInput();
    const grpc::Status status = stream.AwaitRefusal();
    EXPECT_EQ(status.error_code(), refusal.ended.code) << status.error_message();
    EXPECT_THAT(status.error_message(), HasSubstr(refusal.message));
    server.Expect({refusal.ended}, refusal.message);
  }
  server.ExpectNothingMore();
}

TEST(StreamTest, OneWhoseClientLeavesMidwayOrWhoseDeadlinePassesIsCountedOnce) {
  CountedServer server;
  for (const auto code : {grpc::StatusCode::CANCELLED, grpc::StatusCode::DEADLINE_EXCEEDED}) {
    const bool leaves = code == grpc::StatusCode::CANCELLED;
    Stream stream(server.process(), leaves ? nullptr : "2S");
    stream.Send(SmallHeader());
    v1::ExecuteStreamResponse message;
    ASSERT_TRUE(stream.Receive(&message));  // the header of the answer: the request has begun
    stream.Send(ChunkOf(0, Data(8)));
    if (leaves) stream.Cancel();
    EXPECT_FALSE(stream.Receive(&message));
    EXPECT_NE(stream.Finish().error_code(), grpc::StatusCode::OK);
    server.Expect({GeluEnds(code)});
  }
  server.ExpectNothingMore();
}

// Between two requests a stream may end as its client likes: no request fails.
TEST(StreamTest, OneThatEndsBetweenRequestsHasNoneThatFails) {
  CountedServer server;
  Stream stream(server.process());
  const Answer answer = Call(&stream, SmallHeader(), Data(4000), 4000);
  EXPECT_EQ(answer.received_bytes, 4000);
  stream.Cancel();
  EXPECT_EQ(stream.Finish().error_code(), grpc::StatusCode::CANCELLED);
  server.Expect({GeluEnds(grpc::StatusCode::OK)});
  server.ExpectNothingMore();
}

TEST(StreamTest, OnePieceThatIsTooLargeIsRefusedWithTheLimit) {
  ServerProcess server({"--max_message_mib=1"});
  Stream stream(server);
  stream.Send(Header("softmax", {300'000}));  // one row
  const grpc::Status status = stream.AwaitRefusal();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(), HasSubstr("1200000 bytes; the limit is 1048576"));
  EXPECT_EQ(stream.Pushback(), "-1");
  EXPECT_EQ(server.Stop(), 0);
}

// The header promises more than the chunk that comes.
grpc::Status SendOneChunk(const ServerProcess& server, size_t bytes, std::string* pushback) {
  Stream stream(server);
  stream.Send(Header("identity", {8 << 20}));
  stream.Send(ChunkOf(0, std::string(bytes, 'x')));
  stream.CloseInput();
  const grpc::Status status = stream.AwaitRefusal();
  *pushback = stream.Pushback();
  return status;
}

TEST(StreamTest, AChunkHasALimitOfItsOwn) {
  // The limit of messages does not matter, be it less or more.
  for (const char* message_mib : {"12", "512"}) {
    ServerProcess server({absl::StrCat("--max_message_mib=", message_mib)});
    std::string pushback;
    const grpc::Status most = SendOneChunk(server, 16 * kMib, &pushback);
    EXPECT_THAT(most.error_message(), HasSubstr("input 0 lacks byte 16777216 of 33554432"));
    const grpc::Status more = SendOneChunk(server, 16 * kMib + 1, &pushback);
    EXPECT_EQ(more.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
    EXPECT_THAT(more.error_message(), HasSubstr("16777217 bytes of data; the limit is 16777216"));
    EXPECT_EQ(pushback, "-1");
    EXPECT_EQ(server.Sum("warpcall_rejected_total", {"reason=\"message_bytes\""}), 1);
    EXPECT_EQ(server.Stop(), 0);
  }
}

TEST(StreamTest, TinyChunksInOrderAreTaken) {
  ServerProcess server({"--log_level=error"});
  Stream stream(server);
  const std::string data = Data(4 * kMib);
  const Answer answer = Call(&stream, Header("identity", {1 << 20}), data, 300);
  EXPECT_EQ(answer.output == data, true);
  stream.CloseInput();
  EXPECT_TRUE(stream.Finish().ok());
  // They are copied once more than larger ones, and it is said.
  EXPECT_EQ(server.Sum("warpcall_host_copy_bytes_total", {"where=\"copy_in\""}),
            2.0 * static_cast<double>(data.size()));
  EXPECT_EQ(server.Stop(), 0);
}

TEST(StreamTest, TheNumberOfPiecesThatAreHeldBackIsLimited) {
  ServerProcess server;
  Stream stream(server);
  stream.Send(Header("identity", {1 << 20}));
  // Sends every second float: the bytes held are few, but no two are adjacent.
  for (int64_t at = 4; at < 4 << 20; at += 8)
    if (!stream.Send(ChunkOf(at, "abcd"))) break;
  const grpc::Status status = stream.AwaitRefusal();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED) << status.error_message();
  // 4096 and one for 256 bytes: of 4 each, 4162 are the first that are too many.
  EXPECT_THAT(status.error_message(), HasSubstr("held in 4162 pieces; the limit is 4161"));
  EXPECT_EQ(stream.Pushback(), "-1");
  EXPECT_EQ(server.Stop(), 0);
}

TEST(StreamTest, WhatIsHeldBackIsLimited) {
  ServerProcess server;
  Stream stream(server);
  stream.Send(Header("identity", {1 << 28}));  // 1 GiB
  const std::string data = Data(2 * kMib);
  for (size_t at = 2 * kMib; at < 512 * kMib; at += 2 * kMib)
    if (!stream.Send(ChunkOf(static_cast<int64_t>(at), data))) break;
  const grpc::Status status = stream.AwaitRefusal();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED) << status.error_message();
  EXPECT_THAT(status.error_message(), HasSubstr("send chunks nearer to their order"));
  EXPECT_EQ(server.Stop(), 0);
}

TEST(StreamTest, AGibibyteNeedsLittleMemoryEvenWhenTheClientReadsSlowly) {
  ServerProcess server({"--staging_mib=256", "--max_message_mib=256"});
  const int64_t before = server.ResidentBytes();
  Stream stream(server);
  const std::string data = Data(2 * kMib);
  std::atomic<int> sent{0};
  std::thread sender([&] {
    stream.Send(Header("identity", {1 << 28}));
    for (size_t at = 0; at < 1024 * kMib; at += 2 * kMib) {
      stream.Send(ChunkOf(static_cast<int64_t>(at), data));
      ++sent;
    }
    stream.CloseInput();
  });
  const auto sender_is_held_back = [&sent, last = -1]() mutable {
    return std::exchange(last, sent.load()) == sent && sent < 512;
  };
  int64_t received = 0;
  int64_t resident_max = 0;
  v1::ExecuteStreamResponse message;
  while (stream.Receive(&message)) {
    received += static_cast<int64_t>(message.chunk().data().size());
    resident_max = std::max(resident_max, server.ResidentBytes());
    if (received != int64_t{8} << 20) continue;
    EXPECT_TRUE(Eventually(sender_is_held_back));
  }
  sender.join();
  EXPECT_TRUE(stream.Finish().ok());
  EXPECT_EQ(received, int64_t{1} << 30);
  EXPECT_LT(resident_max - before, int64_t{512} << 20);
  EXPECT_EQ(server.Stop(), 0);
}

TEST(StreamTest, SmallStagingAndAFullQueueHoldStreamsBackAndLoseNothing) {
  ServerProcess server({"--staging_mib=8", "--max_message_mib=8", "--queue_limit=2"});
  const std::string data = Data(24 * kMib);
  std::vector<std::thread> clients;
  for (int i = 0; i < 4; ++i)
    clients.emplace_back([&] {
      for (;;) {
        Stream stream(server);
        Answer answer;
        std::thread sender([&] {
          stream.Send(Header("gelu", {6 << 20}));
          stream.SendChunks(data, 0, data.size(), kMib);
        });
        const bool complete = stream.Receive(&answer);
        sender.join();
        if (complete) {
          EXPECT_EQ(answer.output.size(), data.size());
          return;
        }
        // Refused before anything ran, or not at all.
        const grpc::Status status = stream.Finish();
        ASSERT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
        EXPECT_EQ(answer.output.size(), 0u) << status.error_message();
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
      }
    });
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(server.Sum("warpcall_requests_total", {"code=\"OK\""}), 4);
  EXPECT_EQ(server.Stop(), 0);
}

TEST(StreamTest, OneThatIsAloneWaitsForItsOwnWindows) {
  ServerProcess server(FlagsForHeld({"--queue_limit=1", "--lanes_per_device=1"}));
  Gate gate;
  PendingCall held(server, gate.HeldRequest());
  ASSERT_TRUE(Eventually([&] { return LaneIsHeld(server); }));
  // Four windows come; the first waits for the lane and the others wait for the first.
  const std::string data = Data(32 * kMib);
  Stream stream(server);
  stream.Send(Header("gelu", {8 << 20}));
  stream.SendChunks(data, 0, data.size(), kMib);
  EXPECT_TRUE(Eventually([&] { return server.Sum("warpcall_queue_depth") == 1; }));
  gate.Open();
  Answer answer;
  EXPECT_TRUE(stream.Receive(&answer));
  EXPECT_EQ(answer.output.size(), data.size());
  stream.CloseInput();
  EXPECT_TRUE(stream.Finish().ok());
  EXPECT_TRUE(held.Wait().ok());
  EXPECT_EQ(server.Stop(), 0);
}

TEST(StreamTest, WhyAWindowWasStoppedIsWhyTheRequestWas) {
  ServerProcess server(FlagsForHeld({"--max_run_seconds=0.1"}));
  const Gate gate;
  v1::ExecuteStreamRequest header;
  *header.mutable_header() = gate.HeldRequest();
  const std::string data = header.header().inputs(0).data();
  header.mutable_header()->mutable_inputs(0)->clear_data();
  Stream stream(server);
  stream.Send(header);
  stream.Send(ChunkOf(0, data));
  EXPECT_EQ(stream.AwaitRefusal().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(server.Sum("warpcall_rejected_total", {"reason=\"run_time\""}), 1);
  server.Signal(SIGKILL);
  server.Wait();
}

TEST(StreamTest, AClientThatVanishesLeavesNothing) {
  ServerProcess server;
  for (int i = 0; i < 8; ++i) {
    Stream stream(server);
    stream.Send(Header("gelu", {64 << 20}));
    for (int chunk = 0; chunk < 4 * i; ++chunk)
      stream.Send(ChunkOf(static_cast<int64_t>(chunk) << 20, Data(kMib)));
    stream.Cancel();
    EXPECT_EQ(stream.Finish().error_code(), grpc::StatusCode::CANCELLED);
  }
  EXPECT_TRUE(Execute(Connect(server.address()), Request("gelu", {FloatTensor(4)})).status.ok());
  EXPECT_TRUE(
      Eventually([&] { return server.Sum("warpcall_staging_bytes", {"state=\"used\""}) == 0; }));
  EXPECT_EQ(server.Stop(), 0);
}

TEST(StreamTest, DrainFinishesAStreamThatHasBegunAndRefusesTheNext) {
  ServerProcess server;
  Stream stream(server);
  stream.Send(Header("gelu", {12 << 20}));
  absl::Notification drains;
  std::thread sender([&] {  // the server reads no further than its answers are read
    const std::string data = Data(48 * kMib);
    stream.SendChunks(data, 0, 32 * kMib, 2 * kMib);
    drains.WaitForNotification();
    stream.SendChunks(data, 32 * kMib, data.size(), 2 * kMib);
  });
  v1::ExecuteStreamResponse message;
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(stream.Receive(&message));
  server.Signal(SIGTERM);
  EXPECT_TRUE(server.Logs("msg=draining"));
  drains.Notify();
  Answer answer;
  EXPECT_TRUE(stream.Receive(&answer) && !answer.done.implementation().empty());
  sender.join();
  stream.Send(Header("gelu", {4}));
  stream.Send(ChunkOf(0, Data(16)));
  EXPECT_EQ(stream.AwaitRefusal().error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(server.Wait(), 0);
}

}  // namespace
}  // namespace warpcall::testing
