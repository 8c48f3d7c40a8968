#include <sys/prctl.h>

#include <csignal>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "kernels/common/status_macros.h"
#include "server/devices.h"
#include "server/runtime/cpu/cpu_device.h"
#include "server/spawn.h"
#include "server/worker/process.h"

namespace warpcall {
namespace {

// What names of devices that workers serve begin with; the number follows.
constexpr char kWorkersPrefix[] = "cpu:";

absl::StatusOr<std::vector<std::unique_ptr<Device>>> StartCpuWorkers(const DeviceOptions& options) {
  std::vector<std::unique_ptr<Device>> devices;
  for (int i = 0; i < options.cpu_workers; ++i) {
    std::unique_ptr<Device> device;
    ASSIGN_OR_RETURN(device, worker::StartWorker({.device = absl::StrCat(kWorkersPrefix, i),
                                                  .lanes = options.lanes_per_device,
                                                  .devices = options.cpu_workers,
                                                  .fault_injection = options.fault_injection}));
    devices.push_back(std::move(device));
  }
  return devices;
}

}  // namespace

void AddKernels(Registry* registry) { AddCpuKernels(registry); }

void AddFaultInjection(Registry* registry) { AddBrokenKernels(registry); }

absl::StatusOr<std::vector<DeviceName>> ModelsOf(const DeviceOptions& options) {
  for (absl::string_view name : absl::StrSplit(options.selection, ','))
    if (name != "auto" && name != "cpu")
      return absl::NotFoundError(
          absl::StrCat("device \"", name, "\" does not exist; there is: cpu"));
  return std::vector<DeviceName>{{"cpu", DeviceKind::kCpu}};
}

absl::StatusOr<std::vector<std::unique_ptr<Device>>> OpenDevices(const DeviceOptions& options) {
  if (options.cpu_workers > 0) return StartCpuWorkers(options);
  RETURN_IF_ERROR(ModelsOf(options).status());
  std::vector<std::unique_ptr<Device>> devices;
  devices.push_back(std::make_unique<CpuDevice>(CpuDevice::UsableThreads()));
  return devices;
}

absl::StatusOr<std::unique_ptr<Executor>> CreateExecutor(Device* device) {
  auto* const remote = dynamic_cast<worker::RemoteDevice*>(device);
  return remote == nullptr ? CreateLocalExecutor(device, MonotonicNs) : remote->CreateExecutor();
}

absl::Status RunWorker(const DeviceOptions& options) {
  absl::string_view number = options.selection;
  if (!absl::ConsumePrefix(&number, kWorkersPrefix))
    return absl::NotFoundError(
        absl::StrCat("this build has no worker for device \"", options.selection, "\""));
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  CloseUnexpectedDescriptors();
  Registry registry;
  AddKernels(&registry);
  if (options.fault_injection) AddFaultInjection(&registry);
  CpuDevice device(CpuDevice::UsableThreads(), options.selection);
  return worker::ServeDevice(worker::InheritedEnds(options.lanes_per_device),
                             {.registry = &registry,
                              .device = &device,
                              .pin = [](void*, size_t) { return absl::OkStatus(); },
                              .errors = [] { return std::vector<DeviceErrorCount>(); }});
}

std::vector<DeviceErrorCount> DeviceErrorCounts(const Engine&) { return {}; }

std::unique_ptr<GpuMonitor> StartGpuMonitor(const Engine&) { return nullptr; }

void InstallPhaseWatcher() {}

const char* CudaVersion() { return "none"; }

}  // namespace warpcall
