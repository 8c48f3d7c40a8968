// The one place that differs between builds: CMake compiles devices_cpu.cc or devices_cuda.cc.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/multiply_adds.h"
#include "kernels/registry.h"
#include "server/engine/engine.h"
#include "server/engine/gpu_reading.h"
#include "server/engine/metrics_sink.h"
#include "server/process/channel.h"
#include "server/runtime/conditions.h"
#include "server/runtime/device.h"

namespace warpcall {

// Adds every kernel that this build has, preferred devices' rows first.
void AddKernels(Registry* registry);

// Adds the kernels that go wrong, for tests.
void AddFaultInjection(Registry* registry);

struct DeviceOptions {
  std::string selection = "auto";  // names, comma-separated, or "auto": all there are
  int lanes_per_device = 1;
  bool fault_injection = false;
  std::string compile_cache = {};  // a folder; empty: what is compiled at run time is not kept
  // The CPU's threads are as urgent as any, so that what they take is what kernels take and not
  // what the scheduler makes of it.
  bool measures = false;
  // For tests: so many workers that serve the CPU, as each of several GPUs has one, in place of the
  // devices there are: cpu:0, cpu:1, ...
  int cpu_workers = 0;
};

// Opens the devices selected, in order of preference; the CPU is always among them, last. NOT_FOUND
// lists what exists. A single GPU is opened in this process; of several, each gets a worker
// process, because a GPU that is lost takes all of its process's GPUs with it. Of "auto" a GPU that
// can't be opened is left out: logged, and its name added to `left_out` unless that is null.
absl::StatusOr<std::vector<std::unique_ptr<Device>>> OpenDevices(
    const DeviceOptions& options, std::vector<std::string>* left_out = nullptr);

// What OpenDevices logs of "auto" where it opens no GPU.
inline constexpr char kNoGpu[] = "no GPU: the CPU serves alone";

struct DeviceName {
  std::string name;
  DeviceKind kind = DeviceKind::kCpu;
};

// One device of each model among those that OpenDevices would open: what works on it works on all.
// Opens none. NOT_FOUND as above.
absl::StatusOr<std::vector<DeviceName>> ModelsOf(const DeviceOptions& options);

// For EngineOptions::create_executor. `device` is one of OpenDevices'.
absl::StatusOr<std::unique_ptr<Executor>> CreateExecutor(Device* device);

// What a worker process runs instead of the server, for the device `options.selection`, until the
// server that started it goes.
absl::Status RunWorker(const DeviceOptions& options, const process::Channel& parent);

// How often each of the engine's devices' errors was seen, all together; empty in a build without
// such devices.
std::vector<DeviceErrorCount> DeviceErrorCounts(const Engine& engine);

// Thread-safe.
class GpuMonitor {
 public:
  virtual ~GpuMonitor() = default;
  // The last of each GPU, in the engine's order; never waits for a GPU or its driver.
  virtual std::vector<GpuReading> Readings() const = 0;
};

// Watches the engine's GPUs from a thread of its own, once a second. Null when there are none, or
// no library that knows of them, which is logged.
std::unique_ptr<GpuMonitor> StartGpuMonitor(const Engine& engine);

// Of a device that this process opened itself. Null where nothing tells of them.
std::unique_ptr<ConditionReader> OpenConditions(const Device& device);

// A MultiplyAddsSource of what the build has kernels for.
absl::StatusOr<MultiplyAdds> MultiplyAddsFor(Arithmetic arithmetic, const DeviceProperties& device);

// Tells NVIDIA's tools of this process's phases, if one is attached; nothing in a build without
// CUDA.
void InstallPhaseWatcher();

// "none", or the CUDA version of the build.
const char* CudaVersion();

}  // namespace warpcall
