// ExecuteStream against a server whose messages the test decides one by one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/client/bytes.h"
#include "tests/client/fake_server.h"
#include "tests/client/patience.h"
#include "warpcall/client.h"

namespace warpcall::client {
namespace {

using testing::EchoInputs;
using testing::EchoStream;
using ::testing::ElementsAre;
using testing::FakeServer;
using ::testing::HasSubstr;
using testing::kMiB;
using testing::kPatience;
using testing::ServerStream;

constexpr int64_t kKiB = 1024;

v1::ExecuteStreamResponse HeaderOf(const v1::ExecuteRequest& request) {
  v1::ExecuteStreamResponse message;
  *message.mutable_header()->mutable_outputs() = request.inputs();
  return message;
}

v1::ExecuteStreamResponse Chunk(int index, int64_t offset, const std::string& data) {
  v1::ExecuteStreamResponse message;
  message.mutable_chunk()->set_input_index(index);
  message.mutable_chunk()->set_offset(offset);
  message.mutable_chunk()->set_data(data);
  return message;
}

v1::ExecuteStreamResponse Done() {
  v1::ExecuteRequest request;
  request.set_request_id("r-9");
  v1::ExecuteStreamResponse message;
  EchoInputs(request, message.mutable_done());
  return message;
}

std::vector<char> RandomBytes(size_t bytes) {
  static std::mt19937_64 random(20261121);
  std::vector<char> data(bytes);
  for (size_t i = 0; i < bytes; i += sizeof(uint64_t)) {
    const uint64_t word = random();
    std::memcpy(&data[i], &word, std::min(sizeof word, bytes - i));
  }
  return data;
}

// Floats, borrowed from `bytes`.
Tensor FloatsOver(const std::vector<char>& bytes) {
  return Tensor::Borrow(DataType::kFloat32, {static_cast<int64_t>(bytes.size() / 4)}, bytes);
}

TEST(ExecuteStreamTest, SendsEveryFieldAndTakesInputsInStep) {
  std::vector<v1::ExecuteStreamRequest> seen;
  FakeServer server(EchoInputs);
  server.AnswerExecuteStream([&](ServerStream* stream) {
    v1::ExecuteStreamRequest request;
    while (stream->Read(&request)) seen.push_back(request);
    stream->Write(HeaderOf(seen.front().header()));
    // Any order, in pieces of any size.
    std::reverse(seen.begin() + 1, seen.end());
    for (size_t i = 1; i < seen.size(); ++i) {
      const v1::Chunk& chunk = seen[i].chunk();
      const size_t half = chunk.data().size() / 2;
      stream->Write(Chunk(chunk.input_index(), chunk.offset() + static_cast<int64_t>(half),
                          chunk.data().substr(half)));
      stream->Write(Chunk(chunk.input_index(), chunk.offset(), chunk.data().substr(0, half)));
    }
    stream->Write(Done());
    return absl::OkStatus();
  });
  Client client(server.address(), {.timeout = kPatience, .chunk_bytes = 10'000});
  const std::vector<char> large = RandomBytes(400'004), small = RandomBytes(200'002);
  const auto result = client.ExecuteStream(
      Call{.kernel = "matmul",
           .inputs = {FloatsOver(large), Tensor::Borrow(DataType::kBFloat16, {100'001, 1}, small)},
           .attributes = {{"axis", int64_t{-1}}},
           .options = {.implementation = "row", .device = "cpu", .request_id = "r-9"}});
  ASSERT_TRUE(result.ok()) << result.status();

  ASSERT_EQ(result->outputs.size(), 2u);
  EXPECT_TRUE(result->outputs[0].data() == absl::MakeConstSpan(large));
  EXPECT_THAT(result->outputs[0].shape(), ElementsAre(100'001));
  EXPECT_TRUE(result->outputs[1].data() == absl::MakeConstSpan(small));
  EXPECT_EQ(result->outputs[1].data_type(), DataType::kBFloat16);
  EXPECT_THAT(result->outputs[1].shape(), ElementsAre(100'001, 1));
  EXPECT_EQ(result->implementation, "chosen");
  EXPECT_EQ(result->request_id, "r-9");
  EXPECT_EQ(result->timing.kernel_ns, 4000);
  EXPECT_EQ(result->launch.flops, 400);
  EXPECT_EQ(result->attempts, 1);
  EXPECT_EQ(result->stripes, 1);
  EXPECT_GT(result->wall, absl::ZeroDuration());

  EXPECT_EQ(testing::Text(seen.front()),
            "header { kernel: \"matmul\" implementation: \"row\""
            " inputs { data_type: DATA_TYPE_FLOAT32 shape: 100001 }"
            " inputs { data_type: DATA_TYPE_BFLOAT16 shape: 100001 shape: 1 }"
            " attributes { key: \"axis\" value { int_value: -1 } }"
            " device: \"cpu\" request_id: \"r-9\" }");

  // The server's view, in the order of sending: at any time about the same share of each.
  std::reverse(seen.begin() + 1, seen.end());
  double share[2] = {};
  const double chunk_share[2] = {10'000 / 400'004.0, 10'000 / 200'002.0};
  for (size_t i = 1; i < seen.size(); ++i) {
    const v1::Chunk& chunk = seen[i].chunk();
    EXPECT_LE(chunk.data().size(), 10'000u);
    EXPECT_EQ(chunk.offset() % 256, 0);
    const auto input = static_cast<size_t>(chunk.input_index());
    share[input] += static_cast<double>(chunk.data().size()) / (input == 0 ? 400'004.0 : 200'002.0);
    EXPECT_LE(share[0], share[1] + chunk_share[0]);
    EXPECT_LE(share[1], share[0] + chunk_share[1]);
  }
}

TEST(ExecuteStreamTest, WhatPartsMayShareIsSentFirst) {
  FakeServer server(EchoInputs);
  std::vector<int32_t> inputs;
  server.AnswerExecuteStream([&](ServerStream* stream) {
    v1::ExecuteStreamRequest message;
    EXPECT_TRUE(stream->Read(&message));
    stream->Write(HeaderOf(message.header()));
    while (stream->Read(&message)) inputs.push_back(message.chunk().input_index());
    return absl::UnimplementedError("seen enough");
  });
  Client client(server.address(), {.timeout = kPatience, .chunk_bytes = 10 * kKiB});
  const std::vector<char> large = RandomBytes(100'000), small = RandomBytes(4'000);
  const std::vector<char> middle = RandomBytes(30'000);
  const auto result = client.ExecuteStream(Call{
      .kernel = "kernel", .inputs = {FloatsOver(large), FloatsOver(middle), FloatsOver(small)}});
  EXPECT_EQ(result.status().code(), absl::StatusCode::kUnimplemented) << result.status();
  std::vector<int32_t> expected = {2};
  expected.insert(expected.end(), 3, 1);
  expected.insert(expected.end(), 10, 0);
  EXPECT_EQ(inputs, expected);
}

TEST(ExecuteStreamTest, SendsAndReceivesAtOnce) {
  FakeServer server(EchoInputs);
  server.AnswerExecuteStream(EchoStream);
  Client client(server.address(), {.timeout = kPatience});
  // More than connection and flow control hold: without reading, writing would never end.
  const std::vector<char> bytes = RandomBytes(64 * kMiB);
  const auto result =
      client.ExecuteStream(Call{.kernel = "identity", .inputs = {FloatsOver(bytes)}});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_TRUE(result->outputs[0].data() == absl::MakeConstSpan(bytes));
}

TEST(ExecuteStreamTest, EmptyTensorsNeedNoChunks) {
  FakeServer server(EchoInputs);
  server.AnswerExecuteStream(EchoStream);
  Client client(server.address(), {.timeout = kPatience});
  const auto result = client.ExecuteStream(
      Call{.kernel = "identity", .inputs = {Tensor::Borrow(DataType::kFloat32, {0, 3}, {})}});
  ASSERT_TRUE(result.ok()) << result.status();
  ASSERT_EQ(result->outputs.size(), 1u);
  EXPECT_THAT(result->outputs[0].shape(), ElementsAre(0, 3));
}

// A StreamCall between vectors; a test can make its callbacks fail.
struct VectorCall {
  std::vector<char> from = RandomBytes(3 * kMiB);
  std::vector<char> to;
  int begins = 0;
  int64_t next_read = 0;
  std::function<absl::Status(int64_t)> fail_read = [](int64_t) { return absl::OkStatus(); };
  std::function<absl::Status(int64_t)> fail_write = [](int64_t) { return absl::OkStatus(); };
  absl::Status begin_status;

  StreamCall Make() {
    return {.kernel = "identity",
            .inputs = {{DataType::kFloat32, {static_cast<int64_t>(from.size() / 4)}}},
            .read =
                [this](size_t input, int64_t offset, absl::Span<char> into) {
                  EXPECT_EQ(input, 0u);
                  EXPECT_EQ(offset,
                            std::exchange(next_read, offset + static_cast<int64_t>(into.size())));
                  std::copy_n(from.begin() + offset, into.size(), into.begin());
                  return fail_read(offset);
                },
            .begin =
                [this](absl::Span<const TensorSpec> outputs) {
                  ++begins;
                  EXPECT_EQ(outputs.size(), 1u);
                  EXPECT_THAT(outputs[0].shape, ElementsAre(from.size() / 4));
                  to.resize(from.size());
                  return begin_status;
                },
            .write =
                [this](size_t output, int64_t offset, absl::Span<const char> bytes) {
                  EXPECT_EQ(output, 0u);
                  EXPECT_EQ(begins, 1);
                  std::copy(bytes.begin(), bytes.end(), to.begin() + offset);
                  return fail_write(offset);
                }};
  }
};

TEST(ExecuteStreamTest, CallbacksGiveAndTakeTheBytes) {
  FakeServer server(EchoInputs);
  server.AnswerExecuteStream(EchoStream);
  Client client(server.address(), {.timeout = kPatience});
  VectorCall call;
  const auto result = client.ExecuteStream(call.Make());
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(call.begins, 1);
  EXPECT_TRUE(call.from == call.to);
  EXPECT_TRUE(result->outputs.empty());
  EXPECT_EQ(result->device, "cpu");
}

TEST(ExecuteStreamTest, ACallbacksErrorEndsTheCall) {
  const absl::Status refusal = absl::DataLossError("bad sector");
  std::atomic<int> ended{0};
  FakeServer server(EchoInputs);
  server.AnswerExecuteStream([&](ServerStream* stream) {
    absl::Status status = EchoStream(stream);
    ended.fetch_add(1);
    return status;
  });
  Client client(server.address(), {.timeout = kPatience});
  const auto from_half = [&](int64_t offset) {
    return offset >= kMiB ? refusal : absl::OkStatus();
  };
  VectorCall reading;
  reading.fail_read = from_half;
  EXPECT_EQ(client.ExecuteStream(reading.Make()).status(), refusal);
  VectorCall writing;
  writing.fail_write = from_half;
  EXPECT_EQ(client.ExecuteStream(writing.Make()).status(), refusal);
  VectorCall beginning;
  beginning.begin_status = refusal;
  EXPECT_EQ(client.ExecuteStream(beginning.Make()).status(), refusal);
  EXPECT_EQ(server.execute_streams(), 3);
  server.Stop();  // returns when the server has seen each end
  EXPECT_EQ(ended.load(), 3);
}

TEST(ExecuteStreamTest, AnswersThatContradictThemselvesAreTheServersDefect) {
  const std::string six = "123456", eight = "12345678";
  const v1::ExecuteStreamResponse start = [] {
    v1::ExecuteRequest request;
    request.add_inputs()->set_data_type(v1::DATA_TYPE_FLOAT32);
    request.mutable_inputs(0)->add_shape(2);
    return HeaderOf(request);
  }();
  v1::ExecuteStreamResponse no_type = start, negative = start;
  no_type.mutable_header()->mutable_outputs(0)->set_data_type(v1::DATA_TYPE_UNSPECIFIED);
  negative.mutable_header()->mutable_outputs(0)->set_shape(0, -2);
  const std::pair<std::vector<v1::ExecuteStreamResponse>, const char*> kAnswers[] = {
      {{start, Chunk(0, 0, eight), Chunk(0, 7, "8"), Done()}, "twice: 1 at offset 7"},
      {{start, Chunk(0, 2, six), Chunk(0, 0, six), Done()}, "twice: 6 at offset 0"},
      {{start, Chunk(0, 4, six), Done()}, "6 bytes at offset 4 of output 0, which has 8"},
      {{start, Chunk(0, -1, six), Done()}, "at offset -1"},
      {{start, Chunk(0, std::numeric_limits<int64_t>::max(), six), Done()}, "which has 8"},
      {{start, Chunk(1, 0, six), Done()}, "a chunk of output 1; there are 1"},
      {{start, Chunk(-1, 0, six), Done()}, "a chunk of output -1"},
      {{Chunk(0, 0, eight), start, Done()}, "before the header"},
      {{Done()}, "before the header"},
      {{start, start, Done()}, "a second header"},
      {{start, Chunk(0, 0, six), Done()}, "after 6 of the 8 bytes of output 0"},
      {{start, Chunk(0, 0, eight), Done(), Chunk(0, 0, "")}, "after the end"},
      {{start, Chunk(0, 0, eight), Done(), Done()}, "after the end"},
      {{start, Chunk(0, 0, eight)}, "the stream ended before"},
      {{}, "the stream ended before"},
      {{no_type, Chunk(0, 0, eight), Done()}, "data type 0"},
      {{negative, Done()}, "negative"},
  };
  FakeServer server(EchoInputs);
  const std::vector<v1::ExecuteStreamResponse>* answer = nullptr;
  server.AnswerExecuteStream([&](ServerStream* stream) {
    for (const v1::ExecuteStreamResponse& message : *answer) stream->Write(message);
    return absl::OkStatus();
  });
  Client client(server.address(), {.timeout = kPatience});
  const Call call{.kernel = "identity", .inputs = {Tensor::FromFloats({2}, {1, 2})}};
  int calls = 0;
  for (const auto& [messages, what] : kAnswers) {
    answer = &messages;
    const auto result = client.ExecuteStream(call);
    EXPECT_EQ(result.status().code(), absl::StatusCode::kInternal) << what;
    EXPECT_THAT(std::string(result.status().message()), HasSubstr(what));
    EXPECT_EQ(server.execute_streams(), ++calls);
  }
  // Nothing in between: messages of a later version, and empty chunks.
  const std::vector<v1::ExecuteStreamResponse> right = {
      {}, start, Chunk(0, 8, ""), {}, Chunk(0, 6, "78"), Chunk(0, 0, six), Done()};
  answer = &right;
  const auto result = client.ExecuteStream(call);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(std::string(result->outputs[0].data().data(), 8), eight);
}

TEST(ExecuteStreamTest, TheServersRefusalIsItsWordAndIsNotRetried) {
  FakeServer server(EchoInputs);
  server.AnswerExecuteStream([](ServerStream* stream) {
    v1::ExecuteStreamRequest request;
    stream->Read(&request);
    return absl::UnavailableError("the device was lost");
  });
  Client client(server.address(), {.timeout = kPatience});
  // Large: the refusal comes while it is being sent. Borrowed: nobody reads it afterwards.
  auto bytes = std::make_unique<std::vector<char>>(64 * kMiB, 'x');
  const auto result =
      client.ExecuteStream(Call{.kernel = "identity", .inputs = {FloatsOver(*bytes)}});
  bytes.reset();
  EXPECT_EQ(result.status(), absl::UnavailableError("the device was lost"));
  EXPECT_EQ(server.execute_streams(), 1);
}

TEST(ExecuteStreamTest, CallsThatContradictThemselvesAreNotSent) {
  FakeServer server(EchoInputs);
  server.AnswerExecuteStream(EchoStream);
  Client client(server.address(), {.timeout = kPatience});
  const char bytes[8] = {};
  for (const auto& [shape, what] :
       {std::pair(std::vector<int64_t>{3}, "8 bytes of data, but float32[3] takes 12"),
        std::pair(std::vector<int64_t>{-1, -2}, "negative dimension")}) {
    const auto result = client.ExecuteStream(
        Call{.kernel = "identity", .inputs = {Tensor::Borrow(DataType::kFloat32, shape, bytes)}});
    EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(result.status().message()), HasSubstr(what));
  }
  VectorCall vectors;
  StreamCall no_write = vectors.Make();
  no_write.write = nullptr;
  EXPECT_EQ(client.ExecuteStream(no_write).status().code(), absl::StatusCode::kInvalidArgument);
  for (const int64_t chunk_bytes : {int64_t{255}, 4096 * kKiB}) {
    Client odd(server.address(), {.timeout = kPatience, .chunk_bytes = chunk_bytes});
    EXPECT_THAT(std::string(odd.ExecuteStream(vectors.Make()).status().message()),
                HasSubstr("256 to 4193280"));
  }
  EXPECT_EQ(server.execute_streams(), 0);
}

}  // namespace
}  // namespace warpcall::client
