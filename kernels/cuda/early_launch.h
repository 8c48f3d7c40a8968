// Decides which kernels may begin before the kernel ahead of them in the stream has ended
// (programmatic dependent launch). A copy or an event ahead still ends first, and a later kernel
// launched in the ordinary way still waits for the end of this one.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/launch.h"
#include "kernels/device_properties.h"

namespace warpcall::cuda {

// Devices of these, and code for these, have the instructions of early_launch.cuh.
inline constexpr int32_t kArchitectureOfEarlyLaunches = 90;

// `code_architecture`: the virtual one that the kernel was compiled for. It counts beside the
// device's own: a driver can translate code for an older one, in which nothing waits.
constexpr bool CanBeLaunchedEarly(int32_t architecture, int32_t code_architecture) {
  return architecture >= kArchitectureOfEarlyLaunches &&
         code_architecture >= kArchitectureOfEarlyLaunches;
}

// Returns true if launches of a kernel that calls AwaitKernelAhead() set the attribute: the current
// device, described by `device`, supports early launches. False if there is no GPU, as when plans
// are made for a device that is only described.
inline bool IsLaunchedEarly(const void* kernel, const DeviceProperties& device) {
  cudaFuncAttributes attributes = {};
  if (cudaFuncGetAttributes(&attributes, kernel) != cudaSuccess) {
    (void)cudaGetLastError();  // clears the error
    return false;
  }
  return CanBeLaunchedEarly(device.architecture, attributes.ptxVersion);
}

// `grid` for such a kernel.
inline Grid EarlyGridOf(const void* kernel, Grid grid, const DeviceProperties& device) {
  grid.early = IsLaunchedEarly(kernel, device);
  return grid;
}

}  // namespace warpcall::cuda
