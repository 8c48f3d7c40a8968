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
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "proto/common/status_macros.h"
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

constexpr int kLanes = 2;

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
    auto device =
        StartWorker({.device = "cpu", .lanes = kLanes, .clock = [this] { return now_ns_.load(); }});
    ASSERT_TRUE(device.ok()) << device.status();
    std::vector<std::unique_ptr<Device>> devices;
    devices.push_back(*std::move(device));
    EngineOptions options;
    options.lanes_per_device = kLanes;
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

  // Runs identity on 1000 floats of `value`, or on those of the tensor `from`. The result stays in
  // the tensor `to`, or is written to `result`.
  absl::Status RunIdentity(float value, ResidentContentPtr from, ResidentContentPtr to,
                           float* result) {
    const Kernel& kernel = **CpuKernels().Find("identity");
    const std::vector<float> input(1000, value);
    const std::atomic<bool> cancelled{false};
    RequestTrace trace;
    absl::Notification done;
    absl::Status status;
    auto job = std::make_unique<Job>();
    job->key.id = ++last_id_;
    job->op = kernel.op;
    job->row = &CpuKernels().rows()[static_cast<size_t>(kernel.rows[0])];
    job->problem = *MakeProblem(*kernel.op, {kFloats}, {});
    job->inputs.emplace_back();
    if (from == nullptr)
      job->inputs[0].push_back({reinterpret_cast<const char*>(input.data()), 4000});
    job->input_bytes = from == nullptr ? 4000 : 0;
    job->output_bytes = to == nullptr ? 4000 : 0;
    job->residents = {{std::move(from), 0}, {std::move(to), 0}};
    job->cancelled = &cancelled;
    job->trace = &trace;
    job->release_inputs = [] {};
    job->done = [&](absl::Status ended, StagingBuffers outputs) {
      status = std::move(ended);
      if (status.ok() && result != nullptr)
        *result = reinterpret_cast<const float*>(outputs.at(0).data())[999];
      outputs.clear();
      done.Notify();
    };
    RETURN_IF_ERROR(engine_->Submit(&job));
    done.WaitForNotification();
    return status;
  }

  void ExpectServing() {
    float result = 0;
    const absl::Status status = RunIdentity(2.5f, nullptr, nullptr, &result);
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(result, 2.5f);
  }

  // The handle of a new tensor of 1000 floats.
  absl::StatusOr<std::string> Put(const ResidentOwner& owner, float value) {
    ResidentContentPtr content;
    ASSIGN_OR_RETURN(content, engine_->residents().Reserve(owner, kFloats, 0));
    RETURN_IF_ERROR(RunIdentity(value, nullptr, content, nullptr));
    ASSIGN_OR_RETURN(const Residents::Named named, engine_->residents().Name(content, {}));
    return named.handle;
  }

  // A client that always has one tensor, until `over`. Returns the number of those it lost.
  int64_t RunClient(int number, const std::atomic<bool>& over) {
    const ResidentOwner owner{absl::StrCat("client ", number)};
    int64_t lost = 0;
    while (!over) {
      const float value = static_cast<float>(100 * number + lost);
      const absl::StatusOr<std::string> handle = Put(owner, value);
      if (!handle.ok()) {
        EXPECT_EQ(handle.status().code(), absl::StatusCode::kUnavailable) << handle.status();
        continue;
      }
      const absl::string_view name = *handle;
      auto uses = engine_->residents().Use(owner.name, {name});
      for (; uses.ok() && !over; uses = engine_->residents().Use(owner.name, {name})) {
        float result = 0;
        const absl::Status status = RunIdentity(0, (*uses)[0].content(), nullptr, &result);
        if (!status.ok()) EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
        if (status.ok()) EXPECT_EQ(result, value);
      }
      if (uses.ok()) {
        uses->clear();
        engine_->residents().Free(owner.name, {name});
        break;
      }
      EXPECT_EQ(LostHandles(uses.status()), absl::StrCat(name, " lost"));
      ++lost;
    }
    return lost;
  }

  static inline const TensorSpec kFloats{DataType::kFloat32, {1000}};
  std::atomic<int64_t> now_ns_{0};
  std::atomic<uint64_t> last_id_{0};
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

TEST_F(WorkerProcessTest, ClientsLoseTheirTensorsWithTheWorkerAndPutThemAgain) {
  constexpr int kClients = 3;
  constexpr int64_t kDeaths = 5;
  ExpectServing();
  const int64_t memory_before = engine_->Snapshot()[0].memory_used_bytes;
  const auto usage = [this] { return engine_->residents().usage(0); };
  std::atomic<bool> over{false};
  std::atomic<int64_t> lost{0};
  std::vector<std::thread> clients;
  for (int i = 0; i < kClients; ++i)
    clients.emplace_back([this, &over, &lost, i] { lost += RunClient(i, over); });
  for (int64_t deaths = 1; deaths <= kDeaths; ++deaths) {
    EXPECT_TRUE(testing::Eventually([&] { return usage().tensors == kClients; }));
    now_ns_ += RestartRule::kWindowNs + 1;
    KillWorker();
    AwaitRestarts(deaths);
  }
  EXPECT_TRUE(testing::Eventually([&] { return usage().tensors == kClients; }));
  over = true;
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(lost, kClients * kDeaths);
  EXPECT_EQ(usage().ended[static_cast<size_t>(ResidentEnd::kLost)], kClients * kDeaths);
  EXPECT_EQ(usage().tensors, 0);
  EXPECT_EQ(usage().bytes, 0);
  EXPECT_TRUE(testing::Eventually([&] {
    ExpectServing();
    return engine_->Snapshot()[0].memory_used_bytes == memory_before;
  }));
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
