// Clients that ask for much and read nothing: their answers stay in staging memory, and everyone
// else is served as before.
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/e2e/eventually.h"
#include "tests/e2e/raw_call.h"
#include "tests/e2e/raw_http2.h"
#include "tests/e2e/server_process.h"
#include "tests/e2e/steady_clients.h"

namespace warpcall::testing {
namespace {

constexpr int64_t kMib = int64_t{1} << 20;
constexpr char kStagingFlag[] = "--staging_mib=64";
constexpr int64_t kStagingBytes = 64 * kMib;
// Three times what staging holds, of 8 MiB each.
constexpr int kRequests = 24;
// What the process may hold beside its staging memory: what the sockets' buffers, the allocator
// and, under AddressSanitizer, the quarantine of 256 MiB take.
#ifdef __SANITIZE_ADDRESS__
constexpr int64_t kAllowanceBytes = 400 * kMib;
#else
constexpr int64_t kAllowanceBytes = 48 * kMib;
#endif

// Some 50 bytes that are answered with 8 MiB: each element is an empty sum.
std::string LargeAnswerRequest() {
  return Request("matmul", {FloatTensor({2048, 0}, {}), FloatTensor({0, 1024}, {})})
      .SerializeAsString();
}

// Sends its requests and never reads its socket.
std::shared_ptr<RawHttp2> NeverRead(const std::string& address, int64_t window_bytes) {
  auto client = std::make_shared<RawHttp2>(address, window_bytes);
  const std::string message = LargeAnswerRequest();
  for (int i = 0; i < kRequests; ++i)
    client->Send(RawHttp2::CallFrames(static_cast<uint32_t>(2 * i + 1), message));
  EXPECT_TRUE(client->connected());
  return client;
}

// A gRPC client that sends its requests and never asks for an answer: gRPC acknowledges what it has
// to, and takes no more than its window.
class NeverReadingCalls {
 public:
  explicit NeverReadingCalls(const std::string& address)
      : stub_(Connect(address)), calls_(kRequests) {
    const grpc::Slice slice(LargeAnswerRequest());
    const grpc::ByteBuffer request(&slice, 1);
    for (Call& call : calls_) {
      call.stream = stub_.PrepareCall(&call.context, "/warpcall.v1.KernelService/Execute", &queue_);
      call.stream->StartCall(nullptr);
      Await();
      call.stream->WriteLast(request, {}, nullptr);
      Await();
    }
  }
  ~NeverReadingCalls() {
    for (Call& call : calls_) {
      call.context.TryCancel();
      call.stream->Finish(&call.status, nullptr);
      Await();
      EXPECT_NE(call.status.error_code(), grpc::StatusCode::INTERNAL)
          << call.status.error_message();
    }
  }

 private:
  struct Call {
    grpc::ClientContext context;
    std::unique_ptr<grpc::GenericClientAsyncReaderWriter> stream;
    grpc::Status status;
  };

  void Await() {
    void* tag;
    bool ok;
    EXPECT_TRUE(queue_.Next(&tag, &ok));
  }

  grpc::CompletionQueue queue_;
  grpc::GenericStub stub_;
  std::vector<Call> calls_;
};

// `begin` makes a client of kRequests requests that reads no answer.
void ExpectServedBeside(const std::function<Fault(const std::string&)>& begin) {
  ServerProcess server({kStagingFlag, "--log_level=error"});
  const auto staging_used = [&] {
    return server.Sum("warpcall_staging_bytes", {"state=\"used\""});
  };
  const int64_t before_bytes = server.ResidentBytes();
  SteadyClients others(server.address());
  int faults = 0;
  const auto begin_and_hold = [&] {
    ++faults;
    Fault fault = begin(server.address());
    EXPECT_TRUE(Eventually([&] { return staging_used() >= kStagingBytes / 4; }));
    return fault;
  };
  ExpectUndisturbed(&others, begin_and_hold, [&] { return staging_used() == 0; });
  EXPECT_LT(server.PeakResidentBytes() - before_bytes, kStagingBytes + kAllowanceBytes);
  // Each request of theirs ended, and in one of three ways.
  const auto ended = [&](const std::string& code) {
    return server.Sum("warpcall_requests_total", {"kernel=\"matmul\"", "code=\"" + code + "\""});
  };
  EXPECT_TRUE(Eventually([&] {
    return ended("OK") + ended("RESOURCE_EXHAUSTED") + ended("CANCELLED") == faults * kRequests;
  }));
  EXPECT_EQ(server.Sum("warpcall_rejected_total"), ended("RESOURCE_EXHAUSTED"));
  EXPECT_EQ(server.Sum("warpcall_requests_total"), others.sent() + faults * kRequests);
  EXPECT_EQ(server.Stop(), 0);
}

// The server's sends get stuck in the flow control of HTTP/2.
TEST(FaultsReading, AClientThatNeverReadsAndGrantsLittle) {
  ExpectServedBeside(
      [](const std::string& address) { return NeverRead(address, RawHttp2::kWindowBytesDefault); });
}

// They get stuck in TCP.
TEST(FaultsReading, AClientThatNeverReadsAndGrantsMuch) {
  ExpectServedBeside(
      [](const std::string& address) { return NeverRead(address, RawHttp2::kWindowBytesMax); });
}

TEST(FaultsReading, AGrpcClientThatNeverReads) {
  ExpectServedBeside(
      [](const std::string& address) { return std::make_shared<NeverReadingCalls>(address); });
}

}  // namespace
}  // namespace warpcall::testing
