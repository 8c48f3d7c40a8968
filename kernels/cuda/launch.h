// What the launchers of GPU rows share. A row has one function that makes its Grid from the
// problem, which both its launch and its shape use, so that what is reported is what runs.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/common/status_macros.h"
#include "kernels/cuda/cuda_status.h"
#include "kernels/op.h"

namespace warpcall::cuda {

// The largest grid in x; in y and z it is 65535.
inline constexpr int64_t kGridMax = 0x7FFFFFFF;

struct Grid {
  dim3 blocks;
  dim3 threads;
  size_t shared_bytes = 0;  // dynamic, per block
};

inline cudaStream_t StreamOf(const LaunchContext& context) {
  return static_cast<cudaStream_t>(context.stream);
}

// Blocks of more dynamic shared memory than 48 KiB have to be allowed, per function and device.
template <typename... Parameters>
absl::Status AllowSharedMemory(void (*kernel)(Parameters...), size_t bytes) {
  constexpr size_t kAllowedUnasked = 48 << 10;
  if (bytes <= kAllowedUnasked) return absl::OkStatus();
  return ToStatus(
      cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                           cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)),
      "allowing shared memory");
}

// Enqueues one kernel. REQUIRES: a grid of at least one block within the limits above.
template <typename... Parameters, typename... Arguments>
absl::Status Launch(void (*kernel)(Parameters...), const Grid& grid, const LaunchContext& context,
                    Arguments&&... arguments) {
  RETURN_IF_ERROR(AllowSharedMemory(kernel, grid.shared_bytes));
  cudaLaunchConfig_t config = {};
  config.gridDim = grid.blocks;
  config.blockDim = grid.threads;
  config.dynamicSmemBytes = grid.shared_bytes;
  config.stream = StreamOf(context);
  return ToStatus(cudaLaunchKernelEx(&config, kernel, std::forward<Arguments>(arguments)...),
                  "launching a kernel");
}

// The shape of one kernel's launch on the current device, by the occupancy API. Waves are blocks
// over the blocks that the device holds at once. `gpu_kernels` counts all launches of the row.
template <typename... Parameters>
absl::StatusOr<LaunchShape> ShapeOf(void (*kernel)(Parameters...), const Grid& grid,
                                    const DeviceProperties& device, int gpu_kernels = 1) {
  RETURN_IF_ERROR(AllowSharedMemory(kernel, grid.shared_bytes));
  const int threads = static_cast<int>(grid.threads.x * grid.threads.y * grid.threads.z);
  int blocks_per_multiprocessor = 0;
  RETURN_IF_ERROR(ToStatus(cudaOccupancyMaxActiveBlocksPerMultiprocessor(
                               &blocks_per_multiprocessor, reinterpret_cast<const void*>(kernel),
                               threads, grid.shared_bytes),
                           "asking for the occupancy"));
  const double blocks = 1.0 * grid.blocks.x * grid.blocks.y * grid.blocks.z;
  LaunchShape shape = {.grid = {grid.blocks.x, grid.blocks.y, grid.blocks.z},
                       .block = {grid.threads.x, grid.threads.y, grid.threads.z}};
  constexpr int kWarpThreads = 32;
  const int rounded = (threads + kWarpThreads - 1) / kWarpThreads * kWarpThreads;
  shape.theoretical_occupancy =
      1.0 * blocks_per_multiprocessor * rounded / std::max(1, device.threads_per_multiprocessor);
  shape.waves = blocks / std::max(1.0, 1.0 * blocks_per_multiprocessor * device.multiprocessors);
  shape.gpu_kernels = gpu_kernels;
  return shape;
}

}  // namespace warpcall::cuda
