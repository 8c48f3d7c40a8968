// An engine on two fake devices, with a kernel that doubles and one that never ends by itself.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/synchronization/blocking_counter.h"
#include "absl/synchronization/notification.h"
#include "kernels/plan.h"
#include "server/engine/engine.h"
#include "tests/server/fake_device.h"
#include "tests/server/small_op.h"

namespace warpcall::testing {

inline const Op& DoubleOp() {
  static const Op& op = NewSmallOp("double", "y = 2 x");
  return op;
}

// Writes through the workspace, so that a missing or short one shows.
inline absl::Status LaunchDouble(const Problem& problem, const Operands& operands,
                                 const LaunchContext& context) {
  const size_t bytes = problem.inputs[0].bytes();
  if (bytes == 0) return absl::OkStatus();
  auto* workspace = static_cast<float*>(context.workspace);
  std::memcpy(workspace, operands.inputs[0], bytes);
  for (int64_t i = 0; i < problem.inputs[0].elements(); ++i)
    static_cast<float*>(operands.outputs[0])[i] = 2 * workspace[i];
  return absl::OkStatus();
}

// Works until its stop flag is set.
inline absl::Status LaunchEndless(const Problem&, const Operands&, const LaunchContext& context) {
  while (!IsSet(context.stop)) std::this_thread::yield();
  return absl::OkStatus();
}

inline size_t InputBytes(const Problem& problem, const DeviceProperties&) {
  return problem.inputs[0].bytes();
}

inline Registry MakeRegistry() {
  Implementation row = {"twice", Family::kCpu,         DeviceKind::kCpu,
                        "2 x",   {DataType::kFloat32}, SupportsAll};
  row.plan = PlanBy(LaunchDouble, InputBytes);
  Implementation endless = row;
  endless.name = "endless";
  endless.plan = PlanBy(LaunchEndless);
  Registry registry;
  registry.Add(DoubleOp(), {row, endless});
  return registry;
}

// One request and its outcome.
struct Call {
  std::vector<float> input;
  std::atomic<bool> cancelled{false};
  RequestTrace trace;
  int done_count = 0;
  bool released = false;
  absl::Status status;
  std::vector<float> output;
  absl::Notification done;
};

class EngineTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::vector<std::unique_ptr<Device>> devices;
    devices.push_back(std::make_unique<FakeDevice>(&control_[0], "fake:0"));
    devices.push_back(std::make_unique<FakeDevice>(&control_[1], "fake:1"));
    EngineOptions options;
    options.lanes_per_device = 2;
    options.staging_bytes = 64 << 10;
    options.queue = {8, 1 << 20};
    options.run_by_caller_ns_max = 1000;
    options.run_ns_max = kRunNsMax;
    options.copy_threads = 3;
    options.clock = [this] { return now_ns_.load(); };
    options.on_devices_lost = [this] { ++devices_lost_; };
    auto engine = Engine::Create(registry_, std::move(devices), options);
    ASSERT_TRUE(engine.ok());
    engine_ = *std::move(engine);
  }

  std::unique_ptr<Job> MakeJob(Call* call, size_t elements = 100, int device = 0) {
    for (size_t i = 0; i < elements; ++i) call->input.push_back(static_cast<float>(i) + 0.5f);
    auto job = std::make_unique<Job>();
    job->key.id = ++last_id_;
    job->device = device;
    job->op = &DoubleOp();
    job->row = &registry_.rows()[0];
    TensorSpec spec;
    spec.dims = {static_cast<int64_t>(elements)};
    job->problem.inputs = {spec};
    job->problem.outputs = {spec};
    const auto* bytes = reinterpret_cast<const char*>(call->input.data());
    const size_t size = 4 * elements;
    const size_t cut = size / 3;  // two pieces
    job->inputs.push_back({{bytes, cut}, {bytes + cut, size - cut}});
    job->input_bytes = job->output_bytes = static_cast<int64_t>(size);
    job->cancelled = &call->cancelled;
    job->trace = &call->trace;
    job->release_inputs = [call] { call->released = true; };
    job->done = [call](absl::Status status, StagingBuffers outputs) {
      ++call->done_count;
      call->status = std::move(status);
      for (const StagingBuffer& buffer : outputs) {
        if (buffer.bytes() == 0) continue;
        call->output.resize(buffer.bytes() / 4);
        std::memcpy(call->output.data(), buffer.data(), buffer.bytes());
      }
      outputs.clear();
      call->done.Notify();
    };
    return job;
  }

  void Run(Call* call, std::unique_ptr<Job> job) {
    ASSERT_TRUE(engine_->Submit(&job).ok());
    call->done.WaitForNotification();
    ASSERT_TRUE(engine_->AwaitIdle(absl::Seconds(60)));
  }

  // Makes lanes wait at the end of their job until `go`.
  void BlockLanes(absl::BlockingCounter* reached, absl::Notification* go) {
    control_[0].on_operation = [reached, go](const char* operation) {
      if (std::string(operation) == "synchronize" && !go->HasBeenNotified()) {
        reached->DecrementCount();
        go->WaitForNotification();
      }
      return absl::OkStatus();
    };
  }

  static constexpr int64_t kRunNsMax = 60'000'000'000;

  std::atomic<int64_t> now_ns_{1000};
  std::atomic<uint64_t> last_id_{0};
  Registry registry_ = MakeRegistry();
  std::atomic<int> devices_lost_{0};
  FakeDevice::Control control_[2];
  std::unique_ptr<Engine> engine_;  // last: its lanes use the above
};

}  // namespace warpcall::testing
