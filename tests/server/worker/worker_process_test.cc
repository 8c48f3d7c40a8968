// Real worker processes, which this program is when it is started as one: killed under an engine
// that serves the CPU through them.
#include <dirent.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "server/engine/engine.h"
#include "server/worker/process.h"
#include "tests/cpu_kernels.h"
#include "tests/e2e/children.h"
#include "tests/e2e/eventually.h"
#include "tests/server/worker/cpu_worker.h"

namespace warpcall::worker {
namespace {

using testing::ChildrenOf;
using testing::CpuKernels;

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

class WorkerProcessTest : public ::testing::Test {
 protected:
  void SetUp() override {
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
    auto engine = Engine::Create(CpuKernels(), std::move(devices), options);
    ASSERT_TRUE(engine.ok()) << engine.status();
    engine_ = *std::move(engine);
  }
  void TearDown() override {
    engine_.reset();
    while (!ChildrenOf(getpid()).empty()) absl::SleepFor(absl::Milliseconds(1));
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
    const Kernel& kernel = **CpuKernels().Find("identity");
    const std::vector<float> input(1000, 2.5f);
    const std::atomic<bool> cancelled{false};
    RequestTrace trace;
    absl::Notification done;
    auto job = std::make_unique<Job>();
    job->key.id = ++last_id_;
    job->op = kernel.op;
    job->row = &CpuKernels().rows()[static_cast<size_t>(kernel.rows[0])];
    job->problem = *MakeProblem(*kernel.op, {TensorSpec{DataType::kFloat32, {1000}}}, {});
    job->inputs.push_back({{reinterpret_cast<const char*>(input.data()), 4000}});
    job->input_bytes = job->output_bytes = 4000;
    job->cancelled = &cancelled;
    job->trace = &trace;
    job->release_inputs = [] {};
    job->done = [&done](absl::Status status, StagingBuffers outputs) {
      EXPECT_TRUE(status.ok()) << status;
      EXPECT_EQ(reinterpret_cast<const float*>(outputs.at(0).data())[999], 2.5f);
      outputs.clear();
      done.Notify();
    };
    const absl::Status taken = engine_->Submit(&job);
    ASSERT_TRUE(taken.ok()) << taken;
    done.WaitForNotification();
  }

  std::atomic<int64_t> now_ns_{0};
  uint64_t last_id_ = 0;
  std::unique_ptr<Engine> engine_;
};

TEST_F(WorkerProcessTest, FiftyRestartsLeaveNothingBehind) {
  ExpectServing();
  KillWorker();
  AwaitRestarts(1);
  ExpectServing();
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
  // Those of the last worker but one may just be going.
  EXPECT_TRUE(testing::Eventually([&] { return CountEntries("/proc/self/fd") <= descriptors; }));
  EXPECT_TRUE(testing::Eventually([&] { return CountEntries("/proc/self/task") <= threads; }));
  EXPECT_EQ(CountMappings("warpcall-mail"), 1);
  EXPECT_EQ(CountMappings("warpcall-staging"), 1);
  while (ChildrenOf(getpid()).size() != 1)
    absl::SleepFor(absl::Milliseconds(1));  // none stays for good
}

}  // namespace
}  // namespace warpcall::worker

int main(int argc, char** argv) {
  const auto served =
      warpcall::testing::RunAsCpuWorker(argc, argv, warpcall::testing::CpuKernels());
  if (served.has_value()) return *served;
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
