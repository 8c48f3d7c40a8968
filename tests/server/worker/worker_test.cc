// Both ends of a worker's sockets, the worker as a thread on the CPU device or a fake one.
#include "server/worker/worker.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmath>
#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "kernels/registry.h"
#include "server/engine/retry_pushback.h"
#include "server/runtime/cpu/cpu_device.h"
#include "server/worker/protocol.h"
#include "server/worker/remote_device.h"
#include "tests/server/fake_device.h"

namespace warpcall::worker {
namespace {

using testing::FakeDevice;
using ::testing::HasSubstr;

constexpr size_t kStagingBytes = 1 << 20;
constexpr int kLanes = 2;

const Registry& CpuKernels() {
  static const Registry* const registry = [] {
    auto* created = new Registry;
    AddCpuKernels(created);
    return created;
  }();
  return *registry;
}

// A worker thread that serves `device`, and the server's view of it.
class Pair {
 public:
  explicit Pair(Device* device) : served_{&CpuKernels(), device, Pin, Errors} {
    std::vector<int> mine;
    for (int i = 0; i < 1 + kLanes; ++i) {
      int pair[2];
      EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
      mine.push_back(pair[0]);
      theirs_.push_back(pair[1]);
    }
    const int staging = memfd_create("test-staging", MFD_CLOEXEC);
    ends_ = {theirs_[0], fcntl(staging, F_DUPFD_CLOEXEC, 0),
             std::vector<int>(theirs_.begin() + 1, theirs_.end())};
    worker_ = std::thread([this] {
      result_ = ServeDevice(ends_, served_);
      for (const int fd : theirs_) close(fd);
    });
    auto connected =
        RemoteDevice::Connect(mine[0], staging, std::vector<int>(mine.begin() + 1, mine.end()));
    EXPECT_TRUE(connected.ok()) << connected.status();
    remote_ = *std::move(connected);
    auto memory = remote_->AllocateStaging(kStagingBytes);
    EXPECT_TRUE(memory.ok()) << memory.status();
    staging_ = *std::move(memory);
  }
  ~Pair() {
    remote_.reset();
    worker_.join();
    close(ends_.staging);
  }

  RemoteDevice& remote() { return *remote_; }
  char* staging() const { return static_cast<char*>(staging_.data()); }
  void CutConnections() {
    for (const int fd : theirs_) shutdown(fd, SHUT_RDWR);
  }

 private:
  static absl::Status Pin(void*, size_t bytes) {
    EXPECT_EQ(bytes, kStagingBytes);
    return absl::OkStatus();
  }
  static std::vector<DeviceErrorCount> Errors() { return {{"first", 5}, {"second", 7}}; }

  const Served served_;
  Ends ends_;
  std::vector<int> theirs_;
  std::thread worker_;
  absl::Status result_;
  std::unique_ptr<RemoteDevice> remote_;
  Buffer staging_;
};

// One kernel on 1000 floats at the beginning of staging, its output behind them.
struct Work1000 {
  explicit Work1000(const char* kernel_name, std::vector<NamedAttribute> attributes = {}) {
    const Kernel* const kernel = *CpuKernels().Find(kernel_name);
    job.op = kernel->op;
    job.row = &CpuKernels().rows()[static_cast<size_t>(kernel->rows[0])];
    job.problem =
        *MakeProblem(*kernel->op, {TensorSpec{DataType::kFloat32, {10, 100}}}, attributes);
    job.input_bytes = job.output_bytes = 4000;
    job.trace = &trace;
  }
  std::vector<StagingRange> RangesIn(char* staging) const {
    return {{staging, 4000}, {staging + 8192, 4000}};
  }

  Job job;
  RequestTrace trace;
};

TEST(WorkerTest, DescribesItsDevice) {
  CpuDevice device(2);
  Pair pair(&device);
  EXPECT_EQ(pair.remote().properties().name, "cpu");
  EXPECT_EQ(pair.remote().properties().description, device.properties().description);
  EXPECT_EQ(pair.remote().properties().memory_bytes, device.properties().memory_bytes);
  EXPECT_EQ(pair.remote().memory_usage().total_bytes, device.properties().memory_bytes);
  EXPECT_TRUE(pair.remote().healthy());
}

TEST(WorkerTest, EveryPropertyOfAGpuTravels) {
  DeviceProperties gpu;
  gpu.name = "cuda:3";
  gpu.kind = DeviceKind::kCuda;
  gpu.description = "a GPU";
  gpu.memory_bytes = int64_t{141} << 30;
  gpu.multiprocessors = 132;
  gpu.threads_per_multiprocessor = 2048;
  gpu.l2_bytes = 60 << 20;
  gpu.shared_memory_per_block_bytes = 232448;
  gpu.compute_capability = "9.0";
  gpu.architecture = 90;
  gpu.ordinal = 3;
  gpu.pci_bus_id = "0000:9A:00.0";
  const DeviceProperties seen = *FromWire(ToWire(gpu));
  const auto all = [](const DeviceProperties& of) {
    return std::tie(of.name, of.kind, of.description, of.memory_bytes, of.multiprocessors,
                    of.threads_per_multiprocessor, of.l2_bytes, of.shared_memory_per_block_bytes,
                    of.compute_capability, of.architecture, of.ordinal, of.pci_bus_id);
  };
  EXPECT_TRUE(all(seen) == all(gpu)) << seen.name << " " << seen.pci_bus_id;
}

TEST(WorkerTest, RunsKernelsWithTheirAttributesOnSharedStaging) {
  CpuDevice device(2);
  Pair pair(&device);
  auto executor = pair.remote().CreateExecutor();
  ASSERT_TRUE(executor.ok());
  auto* const x = reinterpret_cast<float*>(pair.staging());
  const auto* const y = reinterpret_cast<float*>(pair.staging() + 8192);
  for (int i = 0; i < 1000; ++i) x[i] = static_cast<float>(i % 17) - 8;
  for (const std::string form : {"tanh", "none"}) {
    Work1000 work("gelu", {{"approximate", form}});
    ASSERT_TRUE((*executor)->Run(work.job, work.RangesIn(pair.staging())).ok());
    const double erf = 0.5 * (1 + std::erf(1 / std::sqrt(2.0)));
    const double tanh = 0.5 * (1 + std::tanh(std::sqrt(2 / M_PI) * 1.044715));
    EXPECT_NEAR(y[9], form == "none" ? erf : tanh, 1e-6);
    EXPECT_GT(work.trace.kernel_ns, 0);
    EXPECT_GT(work.trace.device_ns, 0);
  }
  Work1000 rows("softmax", {{"axis", int64_t{1}}});
  ASSERT_TRUE((*executor)->Run(rows.job, rows.RangesIn(pair.staging())).ok());
  double sum = 0;
  for (int i = 0; i < 100; ++i) sum += static_cast<double>(y[i]);
  EXPECT_NEAR(sum, 1, 1e-6);
  EXPECT_EQ(pair.remote().error_counts()[1], 7);
}

TEST(WorkerTest, LanesWorkSideBySideAndNoMoreThanThereAre) {
  CpuDevice device(2);
  Pair pair(&device);
  std::vector<std::thread> threads;
  for (int lane = 0; lane < kLanes; ++lane) {
    auto executor = pair.remote().CreateExecutor();
    ASSERT_TRUE(executor.ok());
    threads.emplace_back([&pair, lane, run = *std::move(executor)] {
      char* const staging = pair.staging() + lane * 65536;
      for (int i = 0; i < 1000; ++i)
        reinterpret_cast<float*>(staging)[i] = static_cast<float>(lane);
      for (int k = 0; k < 200; ++k) {
        Work1000 work("identity");
        ASSERT_TRUE(run->Run(work.job, work.RangesIn(staging)).ok());
        ASSERT_EQ(reinterpret_cast<float*>(staging + 8192)[999], static_cast<float>(lane));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(pair.remote().CreateExecutor().status().code(), absl::StatusCode::kResourceExhausted);
}

TEST(WorkerTest, RefusalsKeepTheirReasonAndHint) {
  FakeDevice::Control control;
  control.memory_limit_bytes = 100;
  FakeDevice device(&control, "fake:0");
  Pair pair(&device);
  auto executor = pair.remote().CreateExecutor();
  Work1000 work("gelu");
  const absl::Status status = (*executor)->Run(work.job, work.RangesIn(pair.staging()));
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("100"));
  EXPECT_TRUE(RetryPushbackMs(status).has_value());
  EXPECT_EQ(work.trace.reject_reason, RejectReason::kDeviceMemory);
  EXPECT_TRUE(pair.remote().healthy());
}

TEST(WorkerTest, ALostDeviceIsToldAndItsWorkerEnds) {
  FakeDevice::Control control;
  FakeDevice device(&control, "fake:0");
  Pair pair(&device);
  auto executor = pair.remote().CreateExecutor();
  control.on_operation = [&](const char*) {
    control.lost = true;
    return absl::UnavailableError("an illegal address");
  };
  Work1000 work("gelu");
  const absl::Status status = (*executor)->Run(work.job, work.RangesIn(pair.staging()));
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("an illegal address"));
  EXPECT_FALSE(pair.remote().healthy());
  EXPECT_THAT(std::string((*executor)->Run(work.job, work.RangesIn(pair.staging())).message()),
              HasSubstr("fake:0 was lost"));
}

TEST(WorkerTest, AWorkerThatDiesIsALostDevice) {
  CpuDevice device(2);
  Pair pair(&device);
  auto executor = pair.remote().CreateExecutor();
  pair.CutConnections();
  Work1000 work("gelu");
  const absl::Status status = (*executor)->Run(work.job, work.RangesIn(pair.staging()));
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("the worker process is gone"));
  EXPECT_FALSE(pair.remote().healthy());
}

TEST(WorkerTest, AFailureToOpenTheDeviceReachesTheServer) {
  int pair[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), 0);
  ReportFailure({.control = pair[1], .staging = -1, .lanes = {}},
                absl::FailedPreconditionError("no code for this GPU"));
  const auto connected = RemoteDevice::Connect(pair[0], memfd_create("none", 0), {});
  EXPECT_EQ(connected.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(connected.status().message(), "no code for this GPU");
  close(pair[1]);
}

}  // namespace
}  // namespace warpcall::worker
