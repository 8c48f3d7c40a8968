// How the engine spreads jobs over devices; see balancer_test for loads of many clients.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "server/engine/engine.h"
#include "tests/server/fake_device.h"

namespace warpcall {
namespace {

using testing::FakeDevice;

const Registry& Kernels() {
  static const Registry* const registry = [] {
    auto* created = new Registry;
    AddCpuKernels(created);
    return created;
  }();
  return *registry;
}

class EngineBalanceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::vector<std::unique_ptr<Device>> devices;
    devices.push_back(std::make_unique<FakeDevice>(&control_[0], "fake:0"));
    devices.push_back(std::make_unique<FakeDevice>(&control_[1], "fake:1"));
    EngineOptions options;
    options.staging_bytes = 64 << 10;
    options.clock = [this] { return now_ns_.load(); };
    auto engine = Engine::Create(Kernels(), std::move(devices), options);
    ASSERT_TRUE(engine.ok()) << engine.status();
    engine_ = *std::move(engine);
  }

  Engine::Choice Choose() const { return Choose(problem_); }
  Engine::Choice Choose(const Problem& problem) const {
    return *engine_->Choose(kernel_, "", "", problem);
  }

  void Run(Engine::Choice choice) {
    RequestTrace trace;
    trace.work = kernel_.op->work(problem_);
    const std::atomic<bool> cancelled{false};
    absl::Notification done;
    absl::Status result;
    auto job = std::make_unique<Job>();
    job->key.id = ++last_id_;
    job->op = kernel_.op;
    job->row = choice.row;
    job->device = choice.device;
    job->load = std::move(choice.load);
    job->problem = problem_;
    job->inputs.push_back({{reinterpret_cast<const char*>(input_.data()), 400}});
    job->input_bytes = job->output_bytes = 400;
    job->cancelled = &cancelled;
    job->trace = &trace;
    job->release_inputs = [] {};
    job->done = [&](absl::Status status, StagingBuffers) {
      result = std::move(status);
      done.Notify();
    };
    ASSERT_TRUE(engine_->Submit(&job).ok());
    done.WaitForNotification();
    ASSERT_TRUE(result.ok()) << result;
    ASSERT_TRUE(engine_->AwaitIdle(absl::Seconds(10)));
  }

  std::atomic<int64_t> now_ns_{1000};
  uint64_t last_id_ = 0;
  const std::vector<float> input_ = std::vector<float>(100, 1.5f);
  const Kernel& kernel_ = **Kernels().Find("identity");
  const Problem problem_ = *MakeProblem(*kernel_.op, {TensorSpec{DataType::kFloat32, {100}}}, {});
  FakeDevice::Control control_[2];
  std::unique_ptr<Engine> engine_;  // last: its lanes use the above
};

// The first job of a device loads what later ones find loaded. Predictions follow the second of the
// two, and what was assigned meanwhile must not be held against a device for good.
TEST_F(EngineBalanceTest, WhatWasThoughtLongOnceDoesNotTiltTheBalance) {
  for (FakeDevice::Control& control : control_)
    control.on_operation = [this, first = true](const char*) mutable {
      now_ns_ += std::exchange(first, false) ? 300'000'000 : 10'000;
      return absl::OkStatus();
    };
  int answers[2] = {0, 0};
  for (int i = 0; i < 400; ++i) {
    Engine::Choice choice = Choose();
    ++answers[choice.device];
    Run(std::move(choice));
  }
  EXPECT_LE(std::abs(answers[0] - answers[1]), 400 * 7 / 100) << answers[0] << ":" << answers[1];
}

TEST_F(EngineBalanceTest, WhatWasChosenAndNotYetSubmittedCounts) {
  std::vector<Engine::Choice> choices;
  int chosen[2] = {0, 0};
  for (int i = 0; i < 8; ++i) {
    choices.push_back(Choose());
    ++chosen[choices.back().device];
  }
  EXPECT_EQ(chosen[0], 4);
  EXPECT_EQ(chosen[1], 4);
}

TEST_F(EngineBalanceTest, WhatWasChosenAndNotYetSubmittedCountsByItsWork) {
  const Problem large =
      *MakeProblem(*kernel_.op, {TensorSpec{DataType::kFloat32, {int64_t{1} << 30}}}, {});
  const Engine::Choice long_one = Choose(large);
  std::vector<Engine::Choice> choices;
  for (int i = 0; i < 8; ++i) {
    choices.push_back(Choose());
    EXPECT_NE(choices.back().device, long_one.device);
  }
}

}  // namespace
}  // namespace warpcall
