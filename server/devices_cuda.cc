#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "kernels/common/status_macros.h"
#include "kernels/cuda/cuda_status.h"
#include "server/devices.h"
#include "server/log.h"
#include "server/runtime/cpu/cpu_device.h"
#include "server/runtime/cuda/cuda_device.h"

namespace warpcall {
namespace {

std::vector<std::string> GpuNames(int count) {
  std::vector<std::string> names;
  for (int i = 0; i < count; ++i) names.push_back(CudaDevice::NameOf(i));
  return names;
}

// Every GPU that works with this build; why another does not goes to the log.
std::vector<std::unique_ptr<Device>> OpenAll(int count) {
  std::vector<std::unique_ptr<Device>> devices;
  for (int i = 0; i < count; ++i) {
    absl::StatusOr<std::unique_ptr<CudaDevice>> device = CudaDevice::Open(i);
    if (device.ok())
      devices.push_back(*std::move(device));
    else
      Log(LogLevel::kWarning, "a GPU is left out",
          {{"device", CudaDevice::NameOf(i)}, {"error", device.status().message()}});
  }
  return devices;
}

}  // namespace

void AddKernels(Registry* registry) {
  AddCudaKernels(registry);
  AddCpuKernels(registry);
}

absl::Status AddFaultInjection(Registry* registry) {
  AddFaultKernels(registry);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::unique_ptr<Device>>> OpenDevices(const std::string& selection) {
  int count;
  ASSIGN_OR_RETURN(count, CudaDevice::Count());
  const std::vector<std::string> names = GpuNames(count);
  std::vector<std::unique_ptr<Device>> devices;
  std::vector<std::string> opened;
  for (const std::string& name : std::vector<std::string>(absl::StrSplit(selection, ','))) {
    if (name == "cpu" || std::find(opened.begin(), opened.end(), name) != opened.end()) continue;
    opened.push_back(name);
    if (name == "auto") {
      if (selection != name)
        return absl::InvalidArgumentError("--devices: auto stands alone, for all devices");
      devices = OpenAll(count);
      continue;
    }
    const auto found = std::find(names.begin(), names.end(), name);
    if (found == names.end())
      return absl::NotFoundError(absl::StrCat(
          "device \"", name, "\" does not exist; there is: ", absl::StrJoin(names, ", "),
          names.empty() ? "" : ", ", "cpu"));
    std::unique_ptr<CudaDevice> device;
    ASSIGN_OR_RETURN(device, CudaDevice::Open(static_cast<int>(found - names.begin())));
    devices.push_back(std::move(device));
  }
  devices.push_back(std::make_unique<CpuDevice>(CpuDevice::UsableThreads()));
  return devices;
}

std::vector<DeviceErrorCount> DeviceErrorCounts() {
  std::vector<DeviceErrorCount> counts;
  for (const cuda::ErrorCount& error : cuda::ErrorCounts())
    counts.push_back({error.code, error.count});
  return counts;
}

const char* CudaVersion() { return cuda::ToolkitVersion(); }

}  // namespace warpcall
