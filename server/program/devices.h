// The one place that differs between builds: CMake compiles devices_cpu.cc or devices_cuda.cc.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/compiled/cuda_code.h"
#include "kernels/manifest/kernel_manifest.h"
#include "kernels/multiply_adds.h"
#include "kernels/plan.h"
#include "kernels/registry.h"
#include "server/engine/engine.h"
#include "server/engine/gpu_reading.h"
#include "server/engine/metrics_sink.h"
#include "server/process/channel.h"
#include "server/runtime/conditions.h"
#include "server/runtime/device.h"

namespace warpcall {

// Adds every kernel of this build, the preferred devices' implementations first.
void AddKernels(Registry* registry);

// Adds faulty kernels, for tests.
void AddFaultInjection(Registry* registry);

struct DeviceOptions {
  std::string selection = "auto";  // device names, comma-separated, or "auto": all
  int lanes_per_device = 1;
  bool fault_injection = false;
  size_t graph_bytes_max = size_t{256} << 20;  // that a lane may keep for graphs
  std::string compile_cache = {};  // a folder; empty: code compiled at run time is not kept
  // Runs the CPU's threads at normal priority, so that measured times are those of the kernels and
  // not of the scheduler.
  bool measures = false;
  // For tests: number of workers that serve the CPU in place of the machine's devices, each as a
  // GPU's worker would: cpu:0, cpu:1, ...
  int cpu_workers = 0;
};

// Opens the selected devices in order of preference; the CPU always comes last. NOT_FOUND lists the
// devices that exist. A single GPU is opened in this process. Several GPUs get a worker process
// each, because a lost GPU takes all of its process's GPUs with it. With "auto", a GPU that can't
// be opened is skipped: logged, and its name added to `left_out` unless that is null.
absl::StatusOr<std::vector<std::unique_ptr<Device>>> OpenDevices(
    const DeviceOptions& options, std::vector<std::string>* left_out = nullptr);

// Log message of OpenDevices for "auto" without a GPU.
inline constexpr char kNoGpu[] = "no GPU: the CPU serves alone";

struct DeviceName {
  std::string name;
  DeviceKind kind = DeviceKind::kCpu;
};

// Returns one device of each model that OpenDevices would open; results for it hold for all of its
// model. Opens none. NOT_FOUND as above.
absl::StatusOr<std::vector<DeviceName>> ModelsOf(const DeviceOptions& options);

// For EngineOptions::create_executor. `device` is one of OpenDevices'.
absl::StatusOr<std::unique_ptr<Executor>> CreateExecutor(Device* device);

// Runs a worker process for the device `options.selection` until the server that started the worker
// ends.
absl::Status RunWorker(const DeviceOptions& options, const process::Channel& parent);

// Number of times each device error occurred, over all of the engine's devices. Empty in a build
// without such devices.
std::vector<DeviceErrorCount> DeviceErrorCounts(const Engine& engine);

// Thread-safe.
class GpuMonitor {
 public:
  virtual ~GpuMonitor() = default;
  // The last reading of each GPU, in the engine's order; never waits for a GPU or its driver.
  virtual std::vector<GpuReading> Readings() const = 0;
};

// Watches the engine's GPUs once a second on its own thread. Returns null if there are none, or,
// with a log message, if no library can watch them.
std::unique_ptr<GpuMonitor> StartGpuMonitor(const Engine& engine);

// Reads the conditions of a device that this process opened. Null if no source reports them.
std::unique_ptr<ConditionReader> OpenConditions(const Device& device);

// A MultiplyAddsSource that covers the kernels of this build.
absl::StatusOr<MultiplyAdds> MultiplyAddsFor(Arithmetic arithmetic, const DeviceProperties& device);

// A ReadsSource for every device of this build.
absl::StatusOr<PlanPtr> ReadsFor(int64_t bytes, const DeviceProperties& device);

// For judge::RunSite::load, on a device that this process opened. UNIMPLEMENTED for the CPU.
absl::StatusOr<PlanPtr> LoadPushed(const compiled::CudaCode& code,
                                   const manifest::KernelLaunches& launches, bool scratch_zero,
                                   const DeviceProperties& device);

// Reports this process's phases to NVIDIA's tools if one is attached. Does nothing in a build
// without CUDA.
void InstallPhaseWatcher();

// "none", or the CUDA version of the build.
const char* CudaVersion();

}  // namespace warpcall
