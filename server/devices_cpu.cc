#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "server/devices.h"
#include "server/runtime/cpu/cpu_device.h"

namespace warpcall {
void AddKernels(Registry* registry) { AddCpuKernels(registry); }

absl::Status AddFaultInjection(Registry*) {
  return absl::FailedPreconditionError("this build has no device that can break");
}

absl::StatusOr<std::vector<std::unique_ptr<Device>>> OpenDevices(const DeviceOptions& options) {
  for (absl::string_view name : absl::StrSplit(options.selection, ','))
    if (name != "auto" && name != "cpu")
      return absl::NotFoundError(
          absl::StrCat("device \"", name, "\" does not exist; there is: cpu"));
  std::vector<std::unique_ptr<Device>> devices;
  devices.push_back(std::make_unique<CpuDevice>(CpuDevice::UsableThreads()));
  return devices;
}

absl::StatusOr<std::unique_ptr<Executor>> CreateExecutor(Device* device) {
  return CreateLocalExecutor(device, MonotonicNs);
}

absl::Status RunWorker(const DeviceOptions& options) {
  return absl::FailedPreconditionError(
      absl::StrCat("this build has no workers, asked for one for ", options.selection));
}

std::vector<DeviceErrorCount> DeviceErrorCounts(const Engine&) { return {}; }

std::unique_ptr<GpuMonitor> StartGpuMonitor(const Engine&) { return nullptr; }

void InstallPhaseWatcher() {}

const char* CudaVersion() { return "none"; }

}  // namespace warpcall
