// Real worker processes, which this program is when it is started as one: killed, hung and given
// up, under an engine that serves the CPU through them.
#include <dirent.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "server/engine/engine.h"
#include "server/worker/process.h"
#include "tests/e2e/children.h"
#include "tests/server/small_op.h"
#include "tests/server/worker/cpu_worker.h"

namespace warpcall::worker {
namespace {

using testing::ChildrenOf;

// Names the FIFO that the kernel "hold" opens when it runs.
constexpr char kFifoVariable[] = "WARPCALL_TEST_FIFO";

// Tells through the FIFO that it runs, and never ends.
absl::Status LaunchHold(const Problem&, const Operands&, const LaunchContext&) {
  open(getenv(kFifoVariable), O_WRONLY | O_CLOEXEC);  // returns when the test has opened it, too
  for (;;) pause();
}

const Registry& Kernels() {
  static const Registry* const registry = [] {
    auto* created = new Registry;
    AddCpuKernels(created);
    created->Add(testing::NewSmallOp("hold", "never ends"), {{"forever",
                                                              Family::kCpu,
                                                              DeviceKind::kCpu,
                                                              "never ends",
                                                              {DataType::kFloat32},
                                                              SupportsAll,
                                                              nullptr,
                                                              LaunchHold,
                                                              nullptr}});
    return created;
  }();
  return *registry;
}

int CountEntries(const char* path) {
  DIR* const folder = opendir(path);
  int count = 0;
  while (readdir(folder) != nullptr) ++count;
  closedir(folder);
  return count;
}

int CountMappings(const std::string& name) {
  std::ifstream file("/proc/self/maps");
  int count = 0;
  for (std::string line; std::getline(file, line);) count += absl::StrContains(line, name) ? 1 : 0;
  return count;
}

// A request and what became of it.
struct Call {
  std::vector<float> input = std::vector<float>(1000, 2.5f);
  std::atomic<bool> cancelled{false};
  RequestTrace trace;
  absl::Status status;
  float last = 0;
  absl::Notification done;
};

class WorkerProcessTest : public ::testing::Test {
 protected:
  void SetUp() override {
    fifo_ = absl::StrCat(::testing::TempDir(), "/hold-", getpid());
    ASSERT_EQ(mkfifo(fifo_.c_str(), 0600), 0);
    setenv(kFifoVariable, fifo_.c_str(), 1);
    auto device = StartWorker({.device = "cpu", .clock = [this] { return now_ns_.load(); }});
    ASSERT_TRUE(device.ok()) << device.status();
    std::vector<std::unique_ptr<Device>> devices;
    devices.push_back(*std::move(device));
    EngineOptions options;
    options.lanes_per_device = 1;
    options.staging_bytes = 1 << 20;
    options.create_executor = [](Device* opened) {
      return static_cast<RemoteDevice*>(opened)->CreateExecutor();
    };
    options.on_devices_lost = [this] { lost_.Notify(); };
    auto engine = Engine::Create(Kernels(), std::move(devices), options);
    ASSERT_TRUE(engine.ok()) << engine.status();
    engine_ = *std::move(engine);
  }
  void TearDown() override {
    engine_.reset();
    unlink(fifo_.c_str());
    while (!ChildrenOf(getpid()).empty()) absl::SleepFor(absl::Milliseconds(1));
  }

  void Submit(Call* call, absl::string_view kernel_name) {
    const Kernel* const kernel = *Kernels().Find(kernel_name);
    auto job = std::make_unique<Job>();
    job->key.id = ++last_id_;
    job->op = kernel->op;
    job->row = &Kernels().rows()[static_cast<size_t>(kernel->rows[0])];
    job->problem = *MakeProblem(*kernel->op, {TensorSpec{DataType::kFloat32, {1000}}}, {});
    job->inputs.push_back({{reinterpret_cast<const char*>(call->input.data()), 4000}});
    job->input_bytes = job->output_bytes = 4000;
    job->cancelled = &call->cancelled;
    job->trace = &call->trace;
    job->release_inputs = [] {};
    job->done = [call](absl::Status status, StagingBuffers outputs) {
      call->status = std::move(status);
      if (!outputs.empty()) call->last = reinterpret_cast<const float*>(outputs[0].data())[999];
      outputs.clear();
      call->done.Notify();
    };
    const absl::Status taken = engine_->Submit(&job);
    ASSERT_TRUE(taken.ok()) << taken;
  }

  // Returns when the worker runs the kernel "hold".
  void AwaitHold() const {
    const int fifo = open(fifo_.c_str(), O_RDONLY | O_CLOEXEC);
    ASSERT_GE(fifo, 0);
    close(fifo);
  }

  void KillWorker() {
    std::vector<pid_t> children;
    do {  // the one before may not be forgotten yet
      children = ChildrenOf(getpid());
    } while (children.size() != 1);
    ASSERT_EQ(kill(children[0], SIGKILL), 0);
  }

  // Until another worker serves.
  void AwaitRestarts(int64_t restarts) {
    while (engine_->Snapshot()[0].restarts < restarts || !engine_->device(0).healthy())
      absl::SleepFor(absl::Milliseconds(1));
  }

  void ExpectServing() {
    Call call;
    Submit(&call, "identity");
    call.done.WaitForNotification();
    EXPECT_TRUE(call.status.ok()) << call.status;
    EXPECT_EQ(call.last, 2.5f);
  }

  std::atomic<int64_t> now_ns_{0};
  uint64_t last_id_ = 0;
  std::string fifo_;
  absl::Notification lost_;  // more than once would end the test
  std::unique_ptr<Engine> engine_;
};

TEST_F(WorkerProcessTest, AKilledWorkersJobEndsAndTheNextWorkerServes) {
  ExpectServing();
  Call held;
  Call waiting;
  Submit(&held, "hold");
  AwaitHold();
  Submit(&waiting, "identity");
  KillWorker();
  held.done.WaitForNotification();
  EXPECT_EQ(held.status.code(), absl::StatusCode::kUnavailable) << held.status;
  EXPECT_EQ(held.trace.reject_reason, RejectReason::kDeviceLost);
  EXPECT_FALSE(held.trace.ran);
  waiting.done.WaitForNotification();  // with either verdict: the next worker may be there
  AwaitRestarts(1);
  ExpectServing();
  EXPECT_FALSE(lost_.HasBeenNotified());
  EXPECT_EQ(engine_->Snapshot()[0].staging_used_bytes, 0);
}

TEST_F(WorkerProcessTest, FiftyRestartsLeaveNothingBehind) {
  ExpectServing();
  KillWorker();
  AwaitRestarts(1);
  const int descriptors = CountEntries("/proc/self/fd");
  const int threads = CountEntries("/proc/self/task");
  EXPECT_EQ(CountMappings("warpcall-mail"), 1);
  for (int64_t restarts = 2; restarts <= 51; ++restarts) {
    now_ns_ += RestartRule::kWindowNs + 1;
    KillWorker();
    AwaitRestarts(restarts);
    if (restarts % 10 == 0) ExpectServing();
  }
  ExpectServing();
  EXPECT_EQ(CountEntries("/proc/self/fd"), descriptors);
  EXPECT_EQ(CountEntries("/proc/self/task"), threads);
  EXPECT_EQ(CountMappings("warpcall-mail"), 1);
  EXPECT_EQ(CountMappings("warpcall-staging"), 1);
  while (ChildrenOf(getpid()).size() != 1)
    absl::SleepFor(absl::Milliseconds(1));  // none stays for good
}

// Nobody asks for the device meanwhile: the loss is found and told all the same.
TEST_F(WorkerProcessTest, TheThirdDeathWithinAMinuteIsALossThatIsTold) {
  for (int64_t restarts = 1; restarts < static_cast<int64_t>(RestartRule::kFailuresMax);
       ++restarts) {
    KillWorker();
    AwaitRestarts(restarts);
    EXPECT_FALSE(lost_.HasBeenNotified());
  }
  KillWorker();
  lost_.WaitForNotification();
  EXPECT_TRUE(engine_->device(0).lost());
  const auto choice = engine_->Choose(
      **Kernels().Find("identity"), "", "",
      *MakeProblem(*(*Kernels().Find("identity"))->op, {TensorSpec{DataType::kFloat32, {1}}}, {}));
  EXPECT_EQ(choice.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(absl::StrContains(choice.status().message(), "the device was lost"))
      << choice.status();
}

}  // namespace
}  // namespace warpcall::worker

int main(int argc, char** argv) {
  const auto served = warpcall::testing::RunAsCpuWorker(argc, argv, warpcall::worker::Kernels());
  if (served.has_value()) return *served;
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
