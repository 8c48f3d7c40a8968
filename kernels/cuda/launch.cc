#include "kernels/cuda/launch.h"

#include <algorithm>

namespace warpcall::cuda {

absl::Status AllowSharedMemory(const void* kernel, size_t bytes) {
  constexpr size_t kAllowedUnasked = 48 << 10;
  if (bytes <= kAllowedUnasked) return absl::OkStatus();
  return ToStatus(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                       static_cast<int>(bytes)),
                  "allowing shared memory");
}

absl::StatusOr<LaunchShape> ShapeOf(const LaunchedKernel& launched,
                                    const DeviceProperties& device) {
  const Grid& grid = launched.grid;
  RETURN_IF_ERROR(AllowSharedMemory(launched.kernel, grid.shared_bytes));
  const int threads = static_cast<int>(grid.threads.x * grid.threads.y * grid.threads.z);
  int blocks_per_multiprocessor = 0;
  RETURN_IF_ERROR(
      ToStatus(cudaOccupancyMaxActiveBlocksPerMultiprocessor(
                   &blocks_per_multiprocessor, launched.kernel, threads, grid.shared_bytes),
               "asking for the occupancy"));
  const double blocks = 1.0 * grid.blocks.x * grid.blocks.y * grid.blocks.z;
  LaunchShape shape = {.grid = {grid.blocks.x, grid.blocks.y, grid.blocks.z},
                       .block = {grid.threads.x, grid.threads.y, grid.threads.z}};
  constexpr int kWarpThreads = 32;
  const int rounded = (threads + kWarpThreads - 1) / kWarpThreads * kWarpThreads;
  shape.theoretical_occupancy =
      1.0 * blocks_per_multiprocessor * rounded / std::max(1, device.threads_per_multiprocessor);
  shape.waves = blocks / std::max(1.0, 1.0 * blocks_per_multiprocessor * device.multiprocessors);
  shape.gpu_kernels = launched.gpu_kernels;
  return shape;
}

}  // namespace warpcall::cuda
