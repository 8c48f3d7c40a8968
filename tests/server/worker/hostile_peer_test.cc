// Worker and server with a corrupted peer: whatever one sends, the other says so and lives on.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "server/worker/link.h"
#include "server/worker/protocol.h"
#include "server/worker/remote_device.h"
#include "tests/e2e/eventually.h"
#include "tests/server/worker/hostile_server.h"

namespace warpcall::worker {
namespace {

using ::testing::HasSubstr;

using ::warpcall::testing::CpuKernels;
using ::warpcall::testing::GoodRunRequest;
using ::warpcall::testing::HostileServer;
using ::warpcall::testing::kStagingBytes;

Hello GoodHello() {
  DeviceProperties properties;
  properties.name = "fake:0";
  return ToWire(properties);
}

RunReply GoodReply() {
  RunReply reply = {};
  reply.healthy = 1;
  return reply;
}

// The server's view of a worker that the test plays.
class MadWorker {
 public:
  absl::Status Greet(const void* hello, size_t bytes) {
    auto control = process::MakeSockets(SOCK_STREAM);
    auto lane = process::MakeSockets(SOCK_SEQPACKET);
    EXPECT_TRUE(control.ok() && lane.ok());
    control_ = process::Channel(std::move(control->second));
    lane_ = std::move(lane->second);
    EXPECT_TRUE(control_.Send("", absl::string_view(static_cast<const char*>(hello), bytes)).ok());
    const int file = memfd_create("test-mail", MFD_CLOEXEC);
    mail_ = *MappedMail::Map(file, 1);
    auto created = RemoteDevice::Create({.start = [&](int) {
      LinkEnds ends;
      ends.child = std::make_unique<process::Child>(process::Channel(std::move(control->first)));
      ends.mail = Descriptor(file);
      ends.lanes.push_back(std::move(lane->first));
      return ends;
    }});
    if (!created.ok()) return created.status();
    remote_ = *std::move(created);
    executor_ = *remote_->CreateExecutor();
    return absl::OkStatus();
  }

  // Returns the server's result for this reply.
  absl::Status Reply(const RunReply& reply) {
    EXPECT_TRUE(mail_.lane(0).replies.Put(reply, lane_.get()).ok());
    return RunJob();
  }
  // Returns its result for bells with no mail: a single one may be a late one.
  absl::Status RingOnly() {
    const char bell = 0;
    for (int i = 0; i < 2; ++i) EXPECT_EQ(send(lane_.get(), &bell, 1, 0), 1);
    return RunJob();
  }

  bool healthy() const { return remote_->healthy(); }
  const RemoteDevice& device() const { return *remote_; }
  RequestTrace trace;

 private:
  absl::Status RunJob() {
    const Kernel* const kernel = *CpuKernels().Find("identity");
    Job job;
    job.op = kernel->op;
    job.row = &CpuKernels().rows()[static_cast<size_t>(kernel->rows[0])];
    job.problem = *MakeProblem(*kernel->op, {TensorSpec{DataType::kFloat32, {10}}}, {});
    job.trace = &trace;
    return executor_->Run(job, {});
  }

  process::Channel control_{-1};
  Descriptor lane_;
  MappedMail mail_;
  std::unique_ptr<RemoteDevice> remote_;
  std::unique_ptr<Executor> executor_;
};

TEST(HostilePeerTest, AHelloMayEndAnywhereAndHoldAnything) {
  Hello hello = GoodHello();
  std::memset(hello.name, 'n', sizeof(hello.name));
  std::memset(hello.description, 'd', sizeof(hello.description));
  EXPECT_EQ(FromWire(hello)->name, std::string(sizeof(hello.name), 'n'));
  EXPECT_EQ(FromWire(hello)->description.size(), sizeof(hello.description));
  hello.kind = 77;
  EXPECT_THAT(std::string(MadWorker().Greet(&hello, sizeof(hello)).message()), HasSubstr("77"));
  hello = GoodHello();
  hello.memory_bytes = -5;
  EXPECT_THAT(std::string(MadWorker().Greet(&hello, sizeof(hello)).message()), HasSubstr("-5"));
  hello = GoodHello();
  hello.resident_bytes_max = -6;
  EXPECT_THAT(std::string(MadWorker().Greet(&hello, sizeof(hello)).message()), HasSubstr("-6"));
  EXPECT_EQ(MadWorker().Greet(&hello, 7).code(), absl::StatusCode::kUnavailable);
  char long_hello[sizeof(Hello) + 1] = {};
  EXPECT_THAT(std::string(MadWorker().Greet(long_hello, sizeof(long_hello)).message()),
              HasSubstr("bytes; the limit is"));
}

TEST(HostilePeerTest, AMessageWithoutAnEndIsCutAtItsRoom) {
  WireStatus status = {};
  status.code = static_cast<int32_t>(absl::StatusCode::kInternal);
  std::memset(status.message, 'm', sizeof(status.message));
  EXPECT_EQ(FromWire(status).message(), std::string(kMessageBytes, 'm'));
  for (const int32_t code : {-1, 17, std::numeric_limits<int32_t>::max()}) {
    status.code = code;
    EXPECT_EQ(FromWire(status).code(), absl::StatusCode::kInternal);
    EXPECT_THAT(std::string(FromWire(status).message()), HasSubstr(std::to_string(code)));
  }
}

TEST(HostilePeerTest, AReplyOfNonsenseIsALostDevice) {
  const Hello hello = GoodHello();
  std::vector<RunReply> replies(11, GoodReply());
  replies[0].reject_reason = static_cast<RejectReason>(kRejectReasonCount);
  replies[1].kernel_ns = -1;
  replies[2].memory.used_bytes = std::numeric_limits<int64_t>::min();
  replies[3].errors[kErrorCodesMax - 1] = -2;
  replies[4].launch.waves = std::numeric_limits<double>::quiet_NaN();
  replies[5].launch.theoretical_occupancy = std::numeric_limits<double>::infinity();
  replies[6].pushback_ms = -2;
  replies[7].launch.gpu_kernels = -1;
  replies[8].launch.registers_per_thread = -1;
  replies[9].launch.shared_memory_bytes = -1;
  replies[10].launch.local_memory_bytes = -1;
  for (const RunReply& reply : replies) {
    MadWorker worker;
    ASSERT_TRUE(worker.Greet(&hello, sizeof(hello)).ok());
    EXPECT_TRUE(worker.Reply(GoodReply()).ok());
    const absl::Status status = worker.Reply(reply);
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << &reply - replies.data();
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("fake:0: the other process sent nonsense"));
    EXPECT_FALSE(worker.healthy());
    EXPECT_EQ(RejectReasonOf(status), RejectReason::kDeviceLost);
  }
}

// Lanes overtake each other between a worker's counting and the server's.
TEST(HostilePeerTest, CountsNeverGoBack) {
  const Hello hello = GoodHello();
  MadWorker worker;
  ASSERT_TRUE(worker.Greet(&hello, sizeof(hello)).ok());
  RunReply reply = GoodReply();
  for (const int64_t count : {3, 5, 4}) {
    reply.errors[1] = count;
    reply.compile_counts[compiled::Counts::kDiskHits] = 10 * count;
    reply.compile_counts[compiled::Counts::kMemoryBytes] = 100 * count;
    reply.compile_counts.compilations[2] = 1000 * count;
    ASSERT_TRUE(worker.Reply(reply).ok());
  }
  EXPECT_EQ(worker.device().error_counts()[1], 5);
  const compiled::Counts counts = worker.device().compile_counts();
  EXPECT_EQ(counts[compiled::Counts::kDiskHits], 50);
  EXPECT_EQ(counts[compiled::Counts::kMemoryBytes], 400);
  EXPECT_EQ(counts.compilations[2], 5000);
}

TEST(HostilePeerTest, BellsWithoutMailAreALostDevice) {
  const Hello hello = GoodHello();
  MadWorker worker;
  ASSERT_TRUE(worker.Greet(&hello, sizeof(hello)).ok());
  EXPECT_EQ(worker.RingOnly().code(), absl::StatusCode::kUnavailable);
  EXPECT_FALSE(worker.healthy());
}

TEST(HostilePeerTest, AWorkerRefusesWhatIsNoProblemAndServesOn) {
  HostileServer server;
  ASSERT_TRUE(server.ShareStaging(kStagingBytes).ok());
  ASSERT_TRUE(server.Run(GoodRunRequest()).ok());
  std::vector<RunRequest> requests(20, GoodRunRequest());
  requests[0].row = -1;
  requests[1].row = static_cast<int32_t>(CpuKernels().rows().size());
  requests[2].input_count = kInputsMax + 1;
  requests[3].input_count = -1;
  requests[4].attribute_count = 1000;
  requests[5].inputs[0].rank = kRankMax + 1;
  requests[6].inputs[0].rank = -3;
  requests[7].inputs[0].data_type = 257;  // 1 in its lowest byte
  requests[8].inputs[0].dims[0] = -10;
  requests[9].inputs[0].dims[0] = int64_t{1} << 40;  // more than staging holds
  requests[10].attributes[0].kind = 9;
  std::memset(requests[11].texts, 'x', requests[11].text_bytes);
  requests[12].offsets[1] = kStagingBytes - 100;
  requests[13].offsets[0] = std::numeric_limits<uint64_t>::max() - 255;
  requests[14].offsets[1] = 3840;  // overlaps the input
  requests[15].text_bytes = kTextsBytesMax + 1;
  requests[16].attributes[0].text_bytes = requests[16].text_bytes + 1;
  requests[17].operand_count = 1;
  requests[18].operand_count = kOperandsMax + 1;
  requests[19].residents[kOperandsMax / 64 - 1] = 1;
  for (const RunRequest& request : requests) {
    EXPECT_FALSE(server.Run(request).ok()) << &request - requests.data();
    ASSERT_TRUE(server.Run(GoodRunRequest()).ok()) << &request - requests.data();
  }
}

// gelu of 1000 floats whose input lies in tensor `number`, and its output in staging.
RunRequest RequestOfTensor(uint64_t number, uint64_t offset) {
  RunRequest request = GoodRunRequest();
  request.residents[0] = 1;
  request.numbers[0] = number;
  request.offsets[0] = offset;
  return request;
}

TEST(HostilePeerTest, AWorkerUsesNoMoreOfATensorThanItHas) {
  HostileServer server;
  ASSERT_TRUE(server.ShareStaging(kStagingBytes).ok());
  ASSERT_TRUE(server.Allocate({7, 8192}).ok());
  ASSERT_TRUE(server.Run(RequestOfTensor(7, 4096)).ok());
  const auto refused = [&](const RunRequest& request) {
    const absl::Status status = server.Run(request);
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
    EXPECT_TRUE(server.Run(RequestOfTensor(7, 0)).ok());
    return std::string(status.message());
  };
  EXPECT_THAT(refused(RequestOfTensor(7, 4352)),
              HasSubstr("operand 0 of 4000 bytes begins at 4352 of 8192 in a tensor"));
  EXPECT_THAT(refused(RequestOfTensor(7, std::numeric_limits<uint64_t>::max() - 255)),
              HasSubstr("begins at 18446744073709551360 of 8192"));
  EXPECT_THAT(refused(RequestOfTensor(7, 64)), HasSubstr("a multiple of 256"));
  EXPECT_THAT(refused(RequestOfTensor(8, 0)), HasSubstr("a tensor's number is 8"));
  RunRequest request = RequestOfTensor(7, 0);
  request.residents[0] = 1 << 2;
  EXPECT_THAT(refused(request), HasSubstr("a tensor's operand is 2"));
  // The output over the input.
  request = RequestOfTensor(7, 0);
  request.residents[0] = 3;
  request.numbers[1] = 7;
  request.offsets[1] = 3840;
  EXPECT_THAT(refused(request), HasSubstr("lies in another operand, is 3840"));
  request.offsets[1] = 4096;
  EXPECT_TRUE(server.Run(request).ok());
}

TEST(HostilePeerTest, AWorkerHasATensorFromItsAllocationUntilItIsFreed) {
  HostileServer server;
  ASSERT_TRUE(server.ShareStaging(kStagingBytes).ok());
  EXPECT_FALSE(server.Run(RequestOfTensor(7, 0)).ok());
  ASSERT_TRUE(server.Allocate({7, 4096}).ok());
  EXPECT_THAT(std::string(server.Allocate({7, 4096}).message()),
              HasSubstr("tensor 7 is there already"));
  EXPECT_THAT(std::string(server.Allocate({8, 0}).message()), HasSubstr("a tensor's size is 0"));
  const absl::Status large = server.Allocate({8, uint64_t{1} << 62});
  EXPECT_EQ(large.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(large.message()),
              HasSubstr("4611686018427387904 bytes does not fit beside 4096 of others; cpu has"));
  RunRequest two = {};
  ToWire(Allocation{8, 4096}, &two);
  two.residents[0] = 3;
  EXPECT_THAT(std::string(server.Run(two).message()), HasSubstr("a set of tensors is 3"));
  server.Free(99);
  EXPECT_TRUE(server.Run(RequestOfTensor(7, 0)).ok());
  server.Free(7);
  EXPECT_TRUE(testing::Eventually([&] { return !server.Run(RequestOfTensor(7, 0)).ok(); }));
  EXPECT_TRUE(server.Run(GoodRunRequest()).ok());
}

TEST(HostilePeerTest, AWorkerMapsNoMoreStagingThanThereIs) {
  for (const uint64_t bytes : {uint64_t{kStagingBytes} + 1, std::numeric_limits<uint64_t>::max()}) {
    HostileServer server;
    EXPECT_EQ(server.ShareStaging(bytes).code(), absl::StatusCode::kResourceExhausted);
  }
}

}  // namespace
}  // namespace warpcall::worker
