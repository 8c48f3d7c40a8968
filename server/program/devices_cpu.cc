#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "kernels/cpu/reads.h"
#include "kernels/graph/step_graph.h"
#include "proto/common/status_macros.h"
#include "server/log/log.h"
#include "server/program/cpu_workers.h"
#include "server/program/devices.h"
#include "server/runtime/cpu/cpu_device.h"
#include "server/worker/process.h"

namespace warpcall {
void AddKernels(Registry* registry) {
  AddCpuKernels(registry);
  AddGraphKernel({DeviceKind::kCpu}, registry);
}

void AddFaultInjection(Registry* registry) { AddBrokenKernels(registry); }

absl::StatusOr<std::vector<DeviceName>> ModelsOf(const DeviceOptions& options) {
  for (absl::string_view name : absl::StrSplit(options.selection, ','))
    if (name != "auto" && name != "cpu")
      return absl::NotFoundError(
          absl::StrCat("device \"", name, "\" does not exist; available: cpu"));
  return std::vector<DeviceName>{{"cpu", DeviceKind::kCpu}};
}

absl::StatusOr<std::vector<std::unique_ptr<Device>>> OpenDevices(const DeviceOptions& options,
                                                                 std::vector<std::string>*) {
  if (options.cpu_workers > 0) return StartCpuWorkers(options);
  RETURN_IF_ERROR(ModelsOf(options).status());
  if (options.selection == "auto")
    Log(LogLevel::kInfo, kNoGpu, {{"reason", "this build has no kernels for GPUs"}});
  std::vector<std::unique_ptr<Device>> devices;
  devices.push_back(std::make_unique<CpuDevice>(CpuDevice::UsableThreads(), "cpu",
                                                options.measures ? 0 : CpuDevice::kServingNice));
  return devices;
}

absl::StatusOr<std::unique_ptr<Executor>> CreateExecutor(Device* device) {
  auto* const remote = dynamic_cast<worker::RemoteDevice*>(device);
  return remote == nullptr ? CreateLocalExecutor(device, MonotonicNs) : remote->CreateExecutor();
}

absl::Status RunWorker(const DeviceOptions& options, const process::Channel& parent) {
  if (IsCpuWorker(options.selection)) return RunCpuWorker(options, parent);
  return absl::NotFoundError(
      absl::StrCat("this build has no worker for device \"", options.selection, "\""));
}

std::vector<DeviceErrorCount> DeviceErrorCounts(const Engine&) { return {}; }

std::unique_ptr<GpuMonitor> StartGpuMonitor(const Engine&) { return nullptr; }

std::unique_ptr<ConditionReader> OpenConditions(const Device&) { return nullptr; }

absl::StatusOr<MultiplyAdds> MultiplyAddsFor(Arithmetic, const DeviceProperties&) {
  return absl::UnimplementedError("this build has no kernels for GPUs");
}

absl::StatusOr<PlanPtr> ReadsFor(int64_t bytes, const DeviceProperties& device) {
  return cpu::ReadsOn(bytes, device);
}

absl::StatusOr<PlanPtr> LoadPushed(const compiled::CudaCode&, const manifest::KernelLaunches&, bool,
                                   const DeviceProperties& device) {
  return absl::UnimplementedError(absl::StrCat(device.name, " runs no pushed kernels"));
}

void InstallPhaseWatcher() {}

const char* CudaVersion() { return "none"; }

}  // namespace warpcall
