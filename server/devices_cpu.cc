#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "server/devices.h"
#include "server/runtime/cpu/cpu_device.h"

namespace warpcall {
void AddKernels(Registry* registry) { AddCpuKernels(registry); }

absl::Status AddFaultInjection(Registry*) {
  return absl::FailedPreconditionError("this build has no device that can break");
}

absl::StatusOr<std::vector<std::unique_ptr<Device>>> OpenDevices(const std::string& selection) {
  for (absl::string_view name : absl::StrSplit(selection, ','))
    if (name != "auto" && name != "cpu")
      return absl::NotFoundError(
          absl::StrCat("device \"", name, "\" does not exist; there is: cpu"));
  std::vector<std::unique_ptr<Device>> devices;
  devices.push_back(std::make_unique<CpuDevice>(CpuDevice::UsableThreads()));
  return devices;
}

std::vector<DeviceErrorCount> DeviceErrorCounts() { return {}; }

const char* CudaVersion() { return "none"; }

}  // namespace warpcall
