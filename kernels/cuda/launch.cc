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
  cudaFuncAttributes attributes;
  RETURN_IF_ERROR(ToStatus(cudaFuncGetAttributes(&attributes, launched.kernel),
                           "asking for a kernel's attributes"));
  const double blocks = 1.0 * grid.blocks.x * grid.blocks.y * grid.blocks.z;
  LaunchShape shape = {.grid = {grid.blocks.x, grid.blocks.y, grid.blocks.z},
                       .block = {grid.threads.x, grid.threads.y, grid.threads.z}};
  constexpr int kWarpThreads = 32;
  const int rounded = (threads + kWarpThreads - 1) / kWarpThreads * kWarpThreads;
  shape.theoretical_occupancy =
      1.0 * blocks_per_multiprocessor * rounded / std::max(1, device.threads_per_multiprocessor);
  shape.waves = blocks / std::max(1.0, 1.0 * blocks_per_multiprocessor * device.multiprocessors);
  shape.gpu_kernels = launched.gpu_kernels;
  shape.registers_per_thread = attributes.numRegs;
  shape.shared_memory_bytes =
      static_cast<int64_t>(attributes.sharedSizeBytes) + static_cast<int64_t>(grid.shared_bytes);
  shape.local_memory_bytes = static_cast<int64_t>(attributes.localSizeBytes);
  return shape;
}

MachineCode CodeOf(const LaunchedKernel& launched) {
  if (!launched.code.entry.empty()) return launched.code;
  const char* name = nullptr;
  if (cudaFuncGetName(&name, launched.kernel) != cudaSuccess || name == nullptr) return {};
  return {.entry = name, .image = {}};
}

}  // namespace warpcall::cuda
