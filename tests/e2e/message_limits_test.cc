// Messages that are small on the wire and large in memory, and messages that are too large for
// their method: each is refused before the server takes memory for it, whichever method gets it.
#include <gmock/gmock.h>
#include <grpc/byte_buffer.h>
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/e2e/all_methods.h"
#include "tests/e2e/raw_call.h"
#include "tests/e2e/server_process.h"
#include "tests/programs.h"
#include "tests/temp_folder.h"
#include "warpcall/v1/warpcall.grpc.pb.h"

namespace warpcall::testing {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kMessageMib = 16;
constexpr int64_t kBombMib = 32;        // in 33 KB of gzip
constexpr int64_t kLargeBombMib = 512;  // in 523 KB
constexpr size_t kSmallMessageBytesMax = 64 << 10;
// Growth of a process that is allowed beside the counted bytes.
int64_t SlackMib() { return ProgramsAreSanitized() ? 512 : 48; }

std::vector<std::string> Flags() {
  return {"--staging_mib=64", "--queue_mib=64", "--reception_mib=192",
          absl::StrCat("--max_message_mib=", kMessageMib), "--self_test=off"};
}

// gzip of `bytes`, then of so many MiB of zeros.
std::string Gzip(const std::string& bytes, int64_t zeros_mib = 0) {
  z_stream stream = {};
  EXPECT_EQ(deflateInit2(&stream, 9, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string compressed;
  const auto add = [&](const std::string& part, int flush) {
    stream.next_in = reinterpret_cast<unsigned char*>(const_cast<char*>(part.data()));
    stream.avail_in = static_cast<uInt>(part.size());
    char out[1 << 16];
    do {
      stream.next_out = reinterpret_cast<unsigned char*>(out);
      stream.avail_out = sizeof(out);
      deflate(&stream, flush);
      compressed.append(out, sizeof(out) - stream.avail_out);
    } while (stream.avail_out == 0);
  };
  add(bytes, Z_NO_FLUSH);
  const std::string zeros(kMib, '\0');
  for (int64_t i = 0; i < zeros_mib; ++i) add(zeros, Z_NO_FLUSH);
  add("", Z_FINISH);
  deflateEnd(&stream);
  return compressed;
}

grpc::ByteBuffer ToMessage(const std::string& bytes, bool gzipped) {
  const grpc::Slice slice(bytes);
  if (!gzipped) return grpc::ByteBuffer(&slice, 1);
  grpc_slice c_slice = slice.c_slice();
  grpc_byte_buffer* const buffer =
      grpc_raw_compressed_byte_buffer_create(&c_slice, 1, GRPC_COMPRESS_GZIP);
  grpc_slice_unref(c_slice);
  grpc::ByteBuffer message;
  static_assert(sizeof(message) == sizeof(buffer), "ByteBuffer is a pointer to what C has");
  std::memcpy(static_cast<void*>(&message), &buffer, sizeof(buffer));
  return message;
}

struct RawAnswer {
  grpc::Status status;
  grpc::ByteBuffer message;  // the first one, if any came
};

// One call of `method`, unary or a stream, with one message.
RawAnswer CallWith(const std::shared_ptr<grpc::Channel>& channel, const std::string& method,
                   const std::string& bytes, bool gzipped) {
  grpc::GenericStub stub(channel);
  grpc::ClientContext context;
  if (gzipped) context.set_compression_algorithm(GRPC_COMPRESS_GZIP);
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(120));
  grpc::CompletionQueue queue;
  const auto call = stub.PrepareCall(&context, method, &queue);
  const auto done = [&] {
    void* tag;
    bool ok = false;
    queue.Next(&tag, &ok);
    return ok;
  };
  call->StartCall(nullptr);
  RawAnswer answer;
  if (done()) {
    call->WriteLast(ToMessage(bytes, gzipped), grpc::WriteOptions(), nullptr);
    done();
    call->Read(&answer.message, nullptr);
    done();
  }
  call->Finish(&answer.status, nullptr);
  done();
  return answer;
}

std::string Flat(const grpc::ByteBuffer& message) {
  grpc::Slice whole;
  if (!message.Valid() || !message.DumpToSingleSlice(&whole).ok()) return "";
  return std::string(reinterpret_cast<const char*>(whole.begin()), whole.size());
}

// Returns true for methods whose requests hold tensors: --max_message_mib bounds the tensors, and
// 64 KiB the rest of the message.
bool TakesTensors(const std::string& method) {
  const std::string name = method.substr(method.rfind('/') + 1);
  return name == "Execute" || name == "ExecuteStream" || name == "ExecuteGraph" ||
         name == "Profile" || name == "Put" || name == "ModelInfer" || name == "ModelStreamInfer";
}

// The largest request of a method without tensors.
size_t LargestMessage(const std::string& method) {
  return absl::EndsWith(method, "/Push") ? (size_t{4} << 20) + (256 << 10) : kSmallMessageBytesMax;
}

// Fields that no message has: number 15, a varint.
std::string UnknownFields(size_t bytes) {
  std::string fields(bytes, '\x01');
  for (size_t i = 0; i < bytes; i += 2) fields[i] = '\x78';
  return fields;
}

TEST(MessageLimits, EveryMethodRefusesMoreThanItTakes) {
  ServerProcess server(Flags());
  const auto channel = Connect(server.address());
  for (const std::string& method : AllMethods()) {
    const size_t most = LargestMessage(method);
    const RawAnswer answer = CallWith(channel, method, UnknownFields(most + 2), false);
    if (TakesTensors(method)) {
      EXPECT_FALSE(answer.status.ok() && answer.message.Length() == 0) << method;
      continue;
    }
    EXPECT_EQ(answer.status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED)
        << method << ": " << answer.status.error_message();
    EXPECT_THAT(answer.status.error_message(), HasSubstr(absl::StrCat(most))) << method;
  }
  EXPECT_EQ(server.Stop(), 0);
}

TEST(MessageLimits, ABombIsNotInflatedBeyondItsMethodsLimit) {
  ServerProcess server(Flags());
  const auto channel = Connect(server.address());
  // A tensor's field that goes on for as long as the bomb does.
  const std::string bomb = Gzip("", kBombMib);
  const int64_t before = server.PeakResidentBytes();
  for (const std::string& method : AllMethods()) {
    const RawAnswer answer = CallWith(channel, method, bomb, true);
    std::string said = answer.status.error_message();
    if (absl::EndsWith(method, "/ModelStreamInfer"))  // its errors are messages
      said = Flat(answer.message);
    else
      EXPECT_EQ(answer.status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED) << method;
    EXPECT_THAT(said, HasSubstr("inflates to more than")) << method;
  }
  const int64_t grown = server.PeakResidentBytes() - before;
  EXPECT_LE(grown, (2 * kMessageMib + SlackMib()) * kMib) << grown / kMib << " MiB";
  EXPECT_EQ(server.Stop(), 0);
}

TEST(MessageLimits, ManyBombsAtOnceHaveOneLimit) {
  ServerProcess server(Flags());
  const std::string bomb = Gzip("", kLargeBombMib);
  const int64_t before = server.PeakResidentBytes();
  std::vector<std::thread> clients;
  for (int i = 0; i < 16; ++i)
    clients.emplace_back([&] {
      const auto channel = Connect(server.address());
      for (const char* const method :
           {"/warpcall.v1.KernelService/Execute", "/warpcall.v1.KernelService/Profile",
            "/inference.GRPCInferenceService/ModelInfer"})
        EXPECT_EQ(CallWith(channel, method, bomb, true).status.error_code(),
                  grpc::StatusCode::RESOURCE_EXHAUSTED);
    });
  for (std::thread& client : clients) client.join();
  const int64_t grown = server.PeakResidentBytes() - before;
  EXPECT_LE(grown, (2 * kMessageMib + 16 * 2 + SlackMib()) * kMib) << grown / kMib << " MiB";
  EXPECT_TRUE(
      Execute(Connect(server.address()), Request("identity", {FloatTensor(1024)})).status.ok());
  EXPECT_EQ(server.Stop(), 0);
}

// A caller without a token costs no inflation: its call is refused first.
TEST(MessageLimits, WhoMayNotCallIsRefusedBeforeAnythingIsInflated) {
  const TempFolder folder;
  const std::string tokens = folder.Path("tokens");
  std::ofstream(tokens) << "alice secret-secret-secret-secret\n";
  std::vector<std::string> flags = Flags();
  flags.push_back("--token_file=" + tokens);
  ServerProcess server(flags);
  const std::string bomb = Gzip("", kLargeBombMib);
  for (const char* const method :
       {"/warpcall.v1.KernelService/Execute", "/warpcall.v1.KernelService/ListKernels",
        "/warpcall.v1.KernelService/Benchmark", "/inference.GRPCInferenceService/ModelInfer"})
    EXPECT_EQ(CallWith(Connect(server.address()), method, bomb, true).status.error_code(),
              grpc::StatusCode::UNAUTHENTICATED)
        << method;
  EXPECT_EQ(server.Stop(), 0);
}

constexpr char kAlice[] = "Bearer alice-alice-alice-alice-alice";
constexpr char kBob[] = "Bearer bob-bob-bob-bob-bob-bob-bob";

// An ExecuteStream whose only chunk, of `mib` MiB, has to wait: it stands at the end of a tensor.
class WaitingStream {
 public:
  WaitingStream(const ServerProcess& server, int64_t mib, bool gzipped)
      : stub_(v1::KernelService::NewStub(Connect(server.address()))) {
    if (gzipped) context_.set_compression_algorithm(GRPC_COMPRESS_GZIP);
    context_.AddMetadata("authorization", kAlice);
    context_.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
    stream_ = stub_->ExecuteStream(&context_);
    v1::ExecuteStreamRequest message;
    message.mutable_header()->set_kernel("gelu");
    v1::Tensor* const input = message.mutable_header()->add_inputs();
    input->set_data_type(v1::DATA_TYPE_FLOAT32);
    input->add_shape(kBytes / 4);
    stream_->Write(message);
    message.mutable_chunk()->set_offset(kBytes - mib * kMib);
    message.mutable_chunk()->set_data(std::string(static_cast<size_t>(mib * kMib), '\0'));
    stream_->Write(message);
  }

  void CloseInput() { stream_->WritesDone(); }
  void Cancel() { context_.TryCancel(); }
  grpc::Status Finish() {
    v1::ExecuteStreamResponse message;
    while (stream_->Read(&message)) continue;
    return stream_->Finish();
  }
  std::string Pushback() const { return PushbackOf(context_); }

 private:
  static constexpr int64_t kBytes = 512 * kMib;

  std::unique_ptr<v1::KernelService::Stub> stub_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::ExecuteStreamRequest, v1::ExecuteStreamResponse>>
      stream_;
};

// Inflated bytes held by one principal's four connections leave another its own share.
TEST(MessageLimits, WhatOnePrincipalHoldsLeavesOthersTheirPart) {
  const TempFolder folder;
  const std::string tokens = folder.Path("tokens");
  std::ofstream(tokens) << "alice " << kAlice + 7 << "\nbob " << kBob + 7 << "\n";
  std::vector<std::string> flags = Flags();
  flags.push_back("--token_file=" + tokens);
  flags.push_back("--send_seconds=300");  // it holds them for as long as the test takes
  ServerProcess server(flags);
  std::vector<std::unique_ptr<WaitingStream>> streams;
  std::vector<std::thread> ends;
  std::atomic<int> refused{0};
  for (int i = 0; i < 4; ++i) {
    streams.push_back(std::make_unique<WaitingStream>(server, kMessageMib - 1, true));
    ends.emplace_back([stream = streams.back().get(), &refused] {
      const grpc::Status status = stream->Finish();
      if (status.error_code() != grpc::StatusCode::RESOURCE_EXHAUSTED) return;
      EXPECT_THAT(status.error_message(), HasSubstr("the caller's inflated messages hold"));
      EXPECT_EQ(stream->Pushback(), "100");
      refused.fetch_add(1);
    });
  }
  for (int i = 0; i < 6000 && refused.load() < 3; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_EQ(refused.load(), 3);

  const auto stub = v1::KernelService::NewStub(Connect(server.address()));
  for (const int64_t mib : {int64_t{1}, kMessageMib}) {
    grpc::ClientContext context;
    context.set_compression_algorithm(GRPC_COMPRESS_GZIP);
    context.AddMetadata("authorization", kBob);
    v1::ExecuteResponse response;
    const grpc::Status status =
        stub->Execute(&context, Request("identity", {FloatTensor(mib * kMib / 4)}), &response);
    EXPECT_TRUE(status.ok()) << mib << " MiB: " << status.error_message();
  }
  for (const auto& stream : streams) stream->Cancel();
  for (std::thread& end : ends) end.join();
  EXPECT_EQ(refused.load(), 3);
  EXPECT_EQ(server.Stop(), 0);
}

TEST(MessageLimits, AStreamThatHoldsInflatedInputHasToGoOn) {
  std::vector<std::string> flags = Flags();
  flags.push_back("--send_seconds=1");
  ServerProcess server(flags);
  WaitingStream plain(server, 1, false);
  WaitingStream gzipped(server, 1, true);
  const grpc::Status status = gzipped.Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(), HasSubstr("1048576 bytes, which came compressed, wait"));
  EXPECT_THAT(status.error_message(), HasSubstr("in 1 s (send_seconds)"));
  EXPECT_EQ(gzipped.Pushback(), "-1");
  // Messages that came plain are bounded by gRPC's own limit.
  plain.CloseInput();
  EXPECT_THAT(plain.Finish().error_message(), HasSubstr("the request ended too early"));
  EXPECT_EQ(server.Stop(), 0);
}

TEST(MessageLimits, CompressedRequestsAreAnsweredAsPlainOnes) {
  ServerProcess server(Flags());
  const auto channel = Connect(server.address());
  for (const int64_t elements : {int64_t{3}, int64_t{1} << 20}) {
    const v1::ExecuteRequest request = Request("identity", {FloatTensor(elements)});
    const std::string bytes = request.SerializeAsString();
    const RawAnswer answer =
        CallWith(channel, "/warpcall.v1.KernelService/Execute", Gzip(bytes), true);
    ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
    v1::ExecuteResponse response;
    ASSERT_TRUE(response.ParseFromString(Flat(answer.message)));
    EXPECT_EQ(response.outputs(0).data(), request.inputs(0).data());
  }
  const RawAnswer kernels =
      CallWith(channel, "/warpcall.v1.KernelService/ListKernels", Gzip(""), true);
  EXPECT_TRUE(kernels.status.ok()) << kernels.status.error_message();
  EXPECT_GT(kernels.message.Length(), 1000u);
  const RawAnswer corrupt =
      CallWith(channel, "/warpcall.v1.KernelService/Execute", "no gzip", true);
  EXPECT_EQ(corrupt.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(server.Stop(), 0);
}

}  // namespace
}  // namespace warpcall::testing
