#include "server/program/cpu_workers.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/common/status_macros.h"
#include "server/runtime/cpu/cpu_device.h"
#include "server/worker/process.h"

namespace warpcall {
namespace {

// Prefix of the names of devices that workers serve; a number follows.
constexpr char kPrefix[] = "cpu:";

}  // namespace

absl::StatusOr<std::vector<std::unique_ptr<Device>>> StartCpuWorkers(const DeviceOptions& options) {
  std::vector<std::unique_ptr<Device>> devices;
  for (int i = 0; i < options.cpu_workers; ++i) {
    std::unique_ptr<Device> device;
    ASSIGN_OR_RETURN(device, worker::StartWorker({.device = absl::StrCat(kPrefix, i),
                                                  .lanes = options.lanes_per_device,
                                                  .devices = options.cpu_workers,
                                                  .fault_injection = options.fault_injection}));
    devices.push_back(std::move(device));
  }
  return devices;
}

bool IsCpuWorker(absl::string_view device) { return absl::StartsWith(device, kPrefix); }

absl::Status RunCpuWorker(const DeviceOptions& options, const process::Channel& parent) {
  Registry registry;
  AddKernels(&registry);
  if (options.fault_injection) AddFaultInjection(&registry);
  CpuDevice device(CpuDevice::UsableThreads(), options.selection);
  device.SetGraphBytesMax(options.graph_bytes_max);
  return worker::ServeDevice(worker::InheritedEnds(parent, options.lanes_per_device),
                             {.registry = &registry,
                              .device = &device,
                              .pin = [](void*, size_t) { return absl::OkStatus(); },
                              .errors = [] { return std::vector<DeviceErrorCount>(); }});
}

}  // namespace warpcall
