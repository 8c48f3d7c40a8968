// Both ends of a worker's sockets, the worker as a thread on the CPU device or a fake one.
#include "server/worker/worker.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "kernels/expression/parser.h"
#include "kernels/graph/step_graph.h"
#include "kernels/registry.h"
#include "server/engine/refusal.h"
#include "server/runtime/cpu/cpu_device.h"
#include "server/worker/protocol.h"
#include "server/worker/remote_device.h"
#include "tests/e2e/eventually.h"
#include "tests/server/fake_device.h"
#include "tests/server/worker/hostile_server.h"

namespace warpcall::worker {
namespace {

using testing::CpuKernels;
using testing::CpuKernelsAndGraphs;
using testing::FakeDevice;
using ::testing::HasSubstr;
using testing::kStagingBytes;

constexpr int kWorkerLanes = 2;

// A worker's side as a thread: serves `device` until its sockets are closed.
class WorkerThread {
 public:
  WorkerThread(const Served& served, Ends ends, process::Channel control)
      : control_(std::move(control)), ends_(std::move(ends)) {
    ends_.control = &control_;
    thread_ = std::thread([this, &served] {
      ServeDevice(ends_, served).IgnoreError();
      Cut();  // as the end of a process does
    });
  }
  ~WorkerThread() {
    thread_.join();
    for (const int fd : ends_.lanes) close(fd);
    for (const int fd : {ends_.staging, ends_.mail}) close(fd);
  }
  void Cut() const {
    control_.Shutdown();
    for (const int fd : ends_.lanes) shutdown(fd, SHUT_RDWR);
  }

 private:
  const process::Channel control_;
  Ends ends_;
  std::thread thread_;
};

// The server's view of `device`, and the worker threads that serve it one after the other.
class Pair {
 public:
  explicit Pair(Device* device, int spin_places = 0)
      : served_{&CpuKernelsAndGraphs(), device, Pin, Errors} {
    auto remote = RemoteDevice::Create({.start = [this](int staging) { return Start(staging); },
                                        .lanes = kWorkerLanes,
                                        .spin_places = spin_places,
                                        .clock = [this] { return now_ns_.load(); }});
    EXPECT_TRUE(remote.ok()) << remote.status();
    remote_ = *std::move(remote);
    auto memory = remote_->AllocateStaging(kStagingBytes);
    EXPECT_TRUE(memory.ok()) << memory.status();
    staging_ = *std::move(memory);
  }
  ~Pair() {
    remote_.reset();
    workers_.clear();
  }

  RemoteDevice& remote() { return *remote_; }
  char* staging() const { return static_cast<char*>(staging_.data()); }
  void RefuseStarts() { refuses_starts_ = true; }
  void PassTime(int64_t ns) { now_ns_ += ns; }
  // Ends the worker that serves at present.
  void CutConnections() {
    absl::MutexLock lock(&mutex_);
    workers_.back()->Cut();
  }
  void AwaitStarts(size_t count) {
    absl::MutexLock lock(&mutex_);
    const auto reached = [this, count]()
                             ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return starts_ >= count; };
    mutex_.Await(absl::Condition(&reached));
  }

 private:
  static absl::Status Pin(void*, size_t bytes) {
    EXPECT_EQ(bytes, kStagingBytes);
    return absl::OkStatus();
  }
  static std::vector<DeviceErrorCount> Errors() { return {{"first", 5}, {"second", 7}}; }

  absl::StatusOr<LinkEnds> Start(int staging) {
    absl::MutexLock lock(&mutex_);
    ++starts_;
    if (refuses_starts_) return absl::ResourceExhaustedError("no process");
    LinkEnds mine;
    Ends theirs;
    for (int i = 0; i < kWorkerLanes; ++i) {
      int pair[2];
      EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
      mine.lanes.emplace_back(pair[0]);
      theirs.lanes.push_back(pair[1]);
    }
    mine.mail = Descriptor(memfd_create("test-mail", MFD_CLOEXEC));
    theirs.staging = fcntl(staging, F_DUPFD_CLOEXEC, 0);
    theirs.mail = fcntl(mine.mail.get(), F_DUPFD_CLOEXEC, 0);
    auto control = process::MakeSockets(SOCK_STREAM);
    EXPECT_TRUE(control.ok());
    workers_.push_back(std::make_unique<WorkerThread>(
        served_, std::move(theirs), process::Channel(std::move(control->second))));
    mine.child = std::make_unique<process::Child>(process::Channel(std::move(control->first)));
    return mine;
  }

  const Served served_;
  std::atomic<int64_t> now_ns_{0};
  std::atomic<bool> refuses_starts_{false};
  absl::Mutex mutex_;
  size_t starts_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<std::unique_ptr<WorkerThread>> workers_ ABSL_GUARDED_BY(mutex_);
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

// A job of as many inputs, and with as long a text, as any op has.
TEST(WorkerTest, AnExpressionOfEveryInputAndTheLongestTextTravels) {
  CpuDevice device(2);
  Pair pair(&device);
  auto executor = pair.remote().CreateExecutor();
  ASSERT_TRUE(executor.ok());
  const Kernel* const kernel = *CpuKernels().Find("fused");
  std::string text = "x0+x1+x2+x3+x4+x5+x6+x7";
  text += std::string(expression::kCharactersMax - text.size(), ' ');
  RequestTrace trace;
  Job job;
  job.op = kernel->op;
  job.row = &CpuKernels().rows()[static_cast<size_t>(kernel->rows[0])];
  job.problem = *MakeProblem(*kernel->op, std::vector<TensorSpec>(8, {DataType::kFloat32, {64}}),
                             {{"expression", text}, {"seed", int64_t{-1}}});
  job.trace = &trace;
  std::vector<StagingRange> ranges;
  for (size_t i = 0; i < 9; ++i) ranges.push_back({pair.staging() + 4096 * i, 256});
  for (size_t i = 0; i < 8; ++i)
    for (size_t j = 0; j < 64; ++j)
      reinterpret_cast<float*>(ranges[i].data)[j] = static_cast<float>((j + 1) << i);
  const absl::Status status = (*executor)->Run(job, ranges);
  ASSERT_TRUE(status.ok()) << status;
  for (size_t j = 0; j < 64; ++j)
    ASSERT_EQ(reinterpret_cast<const float*>(ranges[8].data)[j], static_cast<float>((j + 1) * 255));
}

// Copies of 1000 floats in a row.
struct GraphWork : Work1000 {
  explicit GraphWork(int steps, bool times_steps = false) : Work1000("identity") {
    std::vector<Step> chain;
    for (int i = 0; i < steps; ++i)
      chain.push_back({job.op, job.row, job.problem, {{i == 0, std::max(i - 1, 0)}}});
    const Kernel& kernel = GraphKernel(CpuKernelsAndGraphs());
    job.op = kernel.op;
    job.row = &CpuKernelsAndGraphs().rows()[static_cast<size_t>(kernel.rows[0])];
    const std::vector<TensorSpec> inputs(job.problem.inputs.begin(), job.problem.inputs.end());
    job.problem = MakeGraphProblem(
        std::make_shared<const StepGraph>(std::move(chain), std::vector{steps - 1}, times_steps),
        inputs);
    trace.graph = std::make_shared<GraphRun>(GraphRun{job.problem.graph});
  }
};

// More graphs than a lane knows, twice, and again in a worker that was started anew.
TEST(WorkerTest, GraphsRunByTheirNumbers) {
  CpuDevice device(2);
  Pair pair(&device);
  auto executor = pair.remote().CreateExecutor();
  ASSERT_TRUE(executor.ok());
  auto* const x = reinterpret_cast<float*>(pair.staging());
  const auto* const y = reinterpret_cast<const float*>(pair.staging() + 8192);
  for (int round = 0; round < 2; ++round) {
    for (int steps = 1; steps <= kGraphsMax + 6; ++steps) {
      x[999] = static_cast<float>(100 * round + steps);
      GraphWork work(steps, steps % 2 == 0);
      const absl::Status status = (*executor)->Run(work.job, work.RangesIn(pair.staging()));
      ASSERT_TRUE(status.ok()) << status;
      EXPECT_EQ(y[999], x[999]);
      EXPECT_EQ(work.trace.graph->launches.size(), static_cast<size_t>(steps));
      EXPECT_EQ(work.trace.graph->step_ns.size(), static_cast<size_t>(steps));
    }
  }
  pair.CutConnections();
  EXPECT_TRUE(testing::Eventually([&] {
    GraphWork work(kGraphsMax - 1);  // which the one before knew
    return (*executor)->Run(work.job, work.RangesIn(pair.staging())).ok();
  }));
}

TEST(WorkerTest, EachTextIsItsOwnAttributes) {
  const Kernel* const kernel = *CpuKernels().Find("linear");
  Job job;
  job.row = &CpuKernels().rows()[static_cast<size_t>(kernel->rows[0])];
  const DataType type = DataType::kFloat32;
  job.problem =
      *MakeProblem(*kernel->op, {{type, {2, 3}}, {type, {4, 3}}, {type, {4}}},
                   {{"activation", std::string("gelu_erf")}, {"precision", std::string("tf32")}});
  RunRequest request = {};
  ASSERT_TRUE(ToWire(job, &request).ok());
  const absl::StatusOr<Problem> problem = ProblemOf(request, *kernel->op);
  ASSERT_TRUE(problem.ok()) << problem.status();
  EXPECT_TRUE(*problem == job.problem);
}

// Only the used part of a small message is copied; counts beyond the limits copy all of it.
TEST(WorkerTest, ARequestIsCopiedAsFarAsItIsUsed) {
  RunRequest from = testing::GoodRunRequest();
  std::memset(from.texts + from.text_bytes, 'x', sizeof(from.texts) - from.text_bytes);
  from.inputs[1].rank = 5;
  RunRequest to = {};
  CopyMessage(from, &to);
  EXPECT_EQ(to.inputs[0].dims[1], 100);
  EXPECT_EQ(to.inputs[1].rank, 0);
  EXPECT_EQ(std::string(to.texts), "tanh");
  from.numbers[0] = 11;
  from.numbers[1] = 12;
  from.residents[0] = 2;
  CopyMessage(from, &to);
  EXPECT_EQ(to.numbers[0], 0u);
  EXPECT_EQ(to.numbers[1], 12u);
  from.input_count = 1 << 30;
  from.text_bytes = 1u << 31;
  from.residents[0] = ~0u;
  CopyMessage(from, &to);
  EXPECT_EQ(to.numbers[0], 11u);
  EXPECT_EQ(to.inputs[1].rank, 5);
  EXPECT_EQ(to.texts[kTextsBytesMax - 1], 'x');
}

TEST(WorkerTest, LanesWorkSideBySideAndNoMoreThanThereAre) {
  CpuDevice device(2);
  Pair pair(&device);
  std::vector<std::thread> threads;
  for (int lane = 0; lane < kWorkerLanes; ++lane) {
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

// identity of 1000 floats whose input or output lies in a tensor that stays.
struct ResidentWork : Work1000 {
  ResidentWork(std::shared_ptr<ResidentMemory> tensor, bool is_output, size_t offset = 0)
      : Work1000("identity") {
    job.residents.resize(2);
    job.residents[is_output ? 1 : 0] = {std::move(tensor), offset};
    (is_output ? job.output_bytes : job.input_bytes) = 0;
  }
};

// Copies the floats at the beginning of staging to the tensor, or the tensor's to byte 8192 of
// staging.
absl::Status Put(Executor* executor, char* staging, const std::shared_ptr<ResidentMemory>& tensor,
                 size_t offset = 0) {
  ResidentWork work(tensor, true, offset);
  return executor->Run(work.job, {{{staging, 4000}, {nullptr, 0}}});
}
absl::Status Get(Executor* executor, char* staging, const std::shared_ptr<ResidentMemory>& tensor,
                 size_t offset = 0) {
  ResidentWork work(tensor, false, offset);
  return executor->Run(work.job, {{{nullptr, 0}, {staging + 8192, 4000}}});
}

TEST(WorkerTest, ATensorStaysInTheWorkerUntilTheLastReferenceGoes) {
  CpuDevice device(2);
  Pair pair(&device);
  EXPECT_EQ(pair.remote().resident_bytes_max(), CpuDevice::kResidentBytesMax);
  const std::unique_ptr<Executor> lanes[] = {*pair.remote().CreateExecutor(),
                                             *pair.remote().CreateExecutor()};
  auto* const x = reinterpret_cast<float*>(pair.staging());
  const auto* const y = reinterpret_cast<const float*>(pair.staging() + 8192);
  const int64_t before = device.memory_usage().used_bytes;
  auto tensor = std::make_shared<ResidentMemory>(4096 + 4000);
  x[999] = 1;
  ASSERT_TRUE(Put(lanes[0].get(), pair.staging(), tensor).ok());
  EXPECT_EQ(device.memory_usage().used_bytes, before + 4096 + 4000);
  auto other = std::make_shared<ResidentMemory>(4000);
  x[999] = 2;
  ASSERT_TRUE(Put(lanes[1].get(), pair.staging(), tensor, 4096).ok());
  x[999] = 3;
  ASSERT_TRUE(Put(lanes[1].get(), pair.staging(), other).ok());
  for (const auto& lane : lanes) {
    ASSERT_TRUE(Get(lane.get(), pair.staging(), tensor).ok());
    EXPECT_EQ(y[999], 1);
    ASSERT_TRUE(Get(lane.get(), pair.staging(), tensor, 4096).ok());
    EXPECT_EQ(y[999], 2);
    ASSERT_TRUE(Get(lane.get(), pair.staging(), other).ok());
    EXPECT_EQ(y[999], 3);
  }
  // No job that follows has operands of the one before.
  x[999] = 4;
  Work1000 plain("identity");
  ASSERT_TRUE(lanes[1]->Run(plain.job, plain.RangesIn(pair.staging())).ok());
  EXPECT_EQ(y[999], 4);
  tensor.reset();
  EXPECT_TRUE(
      testing::Eventually([&] { return device.memory_usage().used_bytes == before + 4000; }));
  ASSERT_TRUE(Get(lanes[0].get(), pair.staging(), other).ok());
  EXPECT_EQ(y[999], 3);
}

TEST(WorkerTest, ATensorOfZeroBytesTravels) {
  CpuDevice device(2);
  Pair pair(&device);
  auto executor = pair.remote().CreateExecutor();
  ResidentWork work(std::make_shared<ResidentMemory>(0), true);
  work.job.problem = *MakeProblem(*work.job.op, {TensorSpec{DataType::kFloat32, {0}}}, {});
  EXPECT_TRUE((*executor)->Run(work.job, {{{nullptr, 0}, {nullptr, 0}}}).ok());
}

TEST(WorkerTest, ATensorThatTheDeviceHasNoMemoryForIsRefusedAndMayBeTriedAgain) {
  CpuDevice device(2);
  Pair pair(&device);
  auto executor = pair.remote().CreateExecutor();
  const auto huge = static_cast<size_t>(device.properties().memory_bytes) + 1;
  const absl::Status status =
      Put(executor->get(), pair.staging(), std::make_shared<ResidentMemory>(huge));
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(RejectReasonOf(status), RejectReason::kDeviceMemory);
  EXPECT_TRUE(RetryPushbackMs(status).has_value());
  EXPECT_TRUE(pair.remote().healthy());
  EXPECT_TRUE(Put(executor->get(), pair.staging(), std::make_shared<ResidentMemory>(4000)).ok());
}

TEST(WorkerTest, ATensorIsLostWithItsWorker) {
  CpuDevice device(2);
  Pair pair(&device);
  std::atomic<int64_t> reported{0};
  std::atomic<bool> was_healthy{false};
  pair.remote().OnLost([&] {
    was_healthy = was_healthy || pair.remote().healthy();
    reported = pair.remote().memory_losses();
  });
  auto executor = pair.remote().CreateExecutor();
  auto* const x = reinterpret_cast<float*>(pair.staging());
  auto lost = std::make_shared<ResidentMemory>(4000);
  ASSERT_TRUE(Put(executor->get(), pair.staging(), lost).ok());
  EXPECT_EQ(pair.remote().memory_losses(), 0);
  pair.CutConnections();
  while (pair.remote().restarts() < 1 || !pair.remote().healthy())
    absl::SleepFor(absl::Milliseconds(1));
  EXPECT_EQ(pair.remote().memory_losses(), 1);
  EXPECT_EQ(reported, 1) << "while there was no worker";
  EXPECT_FALSE(was_healthy);
  // The next worker has as many tensors, and never one of the last worker's.
  auto kept = std::make_shared<ResidentMemory>(4000);
  x[999] = 5;
  ASSERT_TRUE(Put(executor->get(), pair.staging(), kept).ok());
  const absl::Status status = Get(executor->get(), pair.staging(), lost);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_EQ(RejectReasonOf(status), RejectReason::kDeviceLost);
  EXPECT_THAT(std::string(status.message()), HasSubstr("cpu: a tensor was lost with the worker"));
  EXPECT_TRUE(pair.remote().healthy());
  lost.reset();
  ASSERT_TRUE(Get(executor->get(), pair.staging(), kept).ok());
  EXPECT_EQ(reinterpret_cast<const float*>(pair.staging() + 8192)[999], 5);
  pair.remote().OnLost(nullptr);
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
  EXPECT_EQ(RejectReasonOf(status), RejectReason::kDeviceMemory);
  EXPECT_TRUE(pair.remote().healthy());
}

TEST(WorkerTest, ALostDeviceIsToldAndItsWorkerEnds) {
  FakeDevice::Control control;
  control.on_operation = [&](const char*) {
    control.lost = true;
    return absl::UnavailableError("an illegal address");
  };
  FakeDevice device(&control, "fake:0");
  Pair pair(&device);
  pair.RefuseStarts();
  auto executor = pair.remote().CreateExecutor();
  Work1000 work("gelu");
  const absl::Status status = (*executor)->Run(work.job, work.RangesIn(pair.staging()));
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("an illegal address"));
  EXPECT_EQ(RejectReasonOf(status), RejectReason::kDeviceLost);
  EXPECT_FALSE(pair.remote().healthy());
  const absl::Status next = (*executor)->Run(work.job, work.RangesIn(pair.staging()));
  EXPECT_EQ(next.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(next.message()), HasSubstr("fake:0: "));
}

TEST(WorkerTest, AWorkerThatEndsIsStartedAgainOnTheSameStaging) {
  CpuDevice device(2);
  Pair pair(&device);
  auto executor = pair.remote().CreateExecutor();
  auto* const x = reinterpret_cast<float*>(pair.staging());
  x[999] = 7;
  for (int restarts = 1; restarts <= 5; ++restarts) {
    pair.CutConnections();
    Work1000 during("identity");
    const absl::Status status = (*executor)->Run(during.job, during.RangesIn(pair.staging()));
    // Unless the next worker was there before this job.
    if (!status.ok()) {
      EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
      EXPECT_EQ(RejectReasonOf(status), RejectReason::kDeviceLost);
    }
    // It is counted, and then it serves.
    while (pair.remote().restarts() < restarts || !pair.remote().healthy())
      absl::SleepFor(absl::Milliseconds(1));
    Work1000 after("identity");
    ASSERT_TRUE((*executor)->Run(after.job, after.RangesIn(pair.staging())).ok());
    EXPECT_EQ(reinterpret_cast<float*>(pair.staging() + 8192)[999], 7);
    // The first worker answered nothing, each of the others once.
    EXPECT_EQ(pair.remote().error_counts()[1], 7 * restarts);
    pair.PassTime(RestartRule::kWindowNs + 1);
  }
  EXPECT_FALSE(pair.remote().lost());
}

// The CPU, as if it compiled something with every job.
class CompilingDevice final : public Device {
 public:
  const DeviceProperties& properties() const override { return cpu_.properties(); }
  bool healthy() const override { return true; }
  absl::StatusOr<std::unique_ptr<Stream>> CreateStream() override { return cpu_.CreateStream(); }
  absl::StatusOr<Buffer> AllocateStaging(size_t bytes) override {
    return cpu_.AllocateStaging(bytes);
  }
  bool KernelsUseStaging(size_t, bool) const override { return true; }
  size_t round_bytes() const override { return 0; }
  MemoryUsage memory_usage() const override { return cpu_.memory_usage(); }
  compiled::Counts compile_counts() const override {
    compiled::Counts counts;
    counts.fields = {2, 3, 4, 5, 600, 7000};
    counts.compilations[8] = 9;
    return counts;
  }

 private:
  CpuDevice cpu_{2};
};

TEST(WorkerTest, WhatWorkersCompiledIsCountedAlsoWhenTheyHaveEnded) {
  CompilingDevice device;
  Pair pair(&device);
  auto executor = pair.remote().CreateExecutor();
  const auto run = [&] {
    Work1000 work("identity");
    ASSERT_TRUE((*executor)->Run(work.job, work.RangesIn(pair.staging())).ok());
  };
  EXPECT_EQ(pair.remote().compile_counts().fields, compiled::Counts().fields);
  run();
  run();
  EXPECT_EQ(pair.remote().compile_counts().fields, device.compile_counts().fields);
  EXPECT_EQ(pair.remote().compile_counts().compilations[8], 9);
  pair.CutConnections();
  while (pair.remote().restarts() < 1 || !pair.remote().healthy())
    absl::SleepFor(absl::Milliseconds(1));
  const std::array<int64_t, compiled::Counts::kFields> past = {2, 3, 4, 5, 0, 7000};
  EXPECT_EQ(pair.remote().compile_counts().fields, past) << "its memory is gone";
  run();
  const std::array<int64_t, compiled::Counts::kFields> sum = {4, 6, 8, 10, 600, 14000};
  EXPECT_EQ(pair.remote().compile_counts().fields, sum);
  EXPECT_EQ(pair.remote().compile_counts().compilations[8], 18);
}

TEST(WorkerTest, NumbersOfCompilingThatCannotBeAreRefused) {
  EXPECT_TRUE(CheckReply({}).ok());
  for (const int64_t nonsense : {int64_t{-1}, (int64_t{1} << 53) + 1}) {
    RunReply reply = {};
    reply.compile_counts.fields.back() = nonsense;
    EXPECT_FALSE(CheckReply(reply).ok());
    reply = {};
    reply.compile_counts.compilations.front() = nonsense;
    EXPECT_FALSE(CheckReply(reply).ok());
  }
}

TEST(WorkerTest, AThirdFailureWithinAMinuteLosesTheDeviceForGood) {
  CpuDevice device(2);
  Pair pair(&device);
  absl::Notification lost;
  pair.remote().OnLost([&] {
    if (pair.remote().lost()) lost.Notify();
  });
  auto executor = pair.remote().CreateExecutor();
  pair.RefuseStarts();
  pair.CutConnections();
  lost.WaitForNotification();  // the end, and two starts that failed
  EXPECT_TRUE(pair.remote().lost());
  EXPECT_FALSE(pair.remote().healthy());
  EXPECT_EQ(pair.remote().restarts(), 0);
  pair.AwaitStarts(3);
  Work1000 work("gelu");
  const absl::Status status = (*executor)->Run(work.job, work.RangesIn(pair.staging()));
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("it was lost"));
}

TEST(WorkerTest, LanesThatWaitAwakeCarryTheSameJobs) {
  CpuDevice device(1);
  Pair pair(&device, 2);
  auto executor = pair.remote().CreateExecutor();
  auto* const x = reinterpret_cast<float*>(pair.staging());
  for (int i = 0; i < 2000; ++i) {
    x[999] = static_cast<float>(i);
    Work1000 work("identity");
    ASSERT_TRUE((*executor)->Run(work.job, work.RangesIn(pair.staging())).ok());
    ASSERT_EQ(reinterpret_cast<float*>(pair.staging() + 8192)[999], static_cast<float>(i));
  }
}

TEST(WorkerTest, AFailureToOpenTheDeviceReachesTheServer) {
  auto control = process::MakeSockets(SOCK_STREAM);
  ASSERT_TRUE(control.ok());
  const process::Channel far(std::move(control->second));
  ReportFailure({.control = &far, .staging = -1, .mail = -1, .lanes = {}},
                absl::FailedPreconditionError("no code for this GPU"));
  const auto opened = RemoteDevice::Create({.start = [&](int) {
    LinkEnds ends;
    ends.child = std::make_unique<process::Child>(process::Channel(std::move(control->first)));
    ends.mail = Descriptor(memfd_create("none", 0));
    ends.lanes.emplace_back(dup(far.socket()));
    return ends;
  }});
  EXPECT_EQ(opened.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(opened.status().message(), "no code for this GPU");
}

TEST(RestartRuleTest, TheFirstStartIsAtOnceTheSecondWaitsAndThereIsNoThird) {
  RestartRule rule;
  const int64_t minute = RestartRule::kWindowNs;
  EXPECT_EQ(rule.PauseAfterFailure(5), 0);
  EXPECT_EQ(rule.PauseAfterFailure(minute), RestartRule::kSecondPauseNs);
  EXPECT_EQ(rule.PauseAfterFailure(minute + 5), RestartRule::kSecondPauseNs);  // one is forgotten
  EXPECT_EQ(rule.PauseAfterFailure(minute + 6), absl::nullopt);
  RestartRule slow;
  for (int i = 0; i < 100; ++i) EXPECT_EQ(slow.PauseAfterFailure(i * minute), 0);
}

}  // namespace
}  // namespace warpcall::worker
