// The one place that differs between builds: CMake compiles devices_cpu.cc or devices_cuda.cc.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/registry.h"
#include "server/engine/metrics_sink.h"
#include "server/runtime/device.h"

namespace warpcall {

// Adds every kernel that this build has, preferred devices' rows first.
void AddKernels(Registry* registry);

// Adds the kernel that breaks a device, for tests. FAILED_PRECONDITION in a build without devices
// that can break.
absl::Status AddFaultInjection(Registry* registry);

// Opens the devices that `selection` names ("auto": all there are), in order of preference; the CPU
// is always among them, last. NOT_FOUND lists what exists.
absl::StatusOr<std::vector<std::unique_ptr<Device>>> OpenDevices(const std::string& selection);

// How often each of the devices' errors was seen since the process began; empty in a build without
// such devices.
std::vector<DeviceErrorCount> DeviceErrorCounts();

// "none", or the CUDA version of the build.
const char* CudaVersion();

}  // namespace warpcall
