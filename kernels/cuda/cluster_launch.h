// Launches kernels whose blocks form clusters.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "kernels/cuda/launch.h"
#include "proto/common/check.h"
#include "proto/common/status_macros.h"

namespace warpcall::cuda {

// Devices of these have clusters, whose blocks write to each other's shared memory.
inline constexpr int32_t kArchitectureOfClusters = 90;
// Blocks of a cluster on every one of them; more, up to 16, need the kernel's consent.
inline constexpr int kClusterBlocksPortable = 8;

// REQUIRES: the grid's blocks in x are a multiple of cluster_blocks.
struct ClusterGrid {
  Grid grid;
  int cluster_blocks;
};

// Fills `config`, with `attribute` in it, for launches of `kernel` and questions about them.
inline absl::Status Configure(const void* kernel, const ClusterGrid& grid,
                              cudaLaunchAttribute* attribute, cudaLaunchConfig_t* config) {
  WARPCALL_DCHECK(grid.cluster_blocks > 0, grid.cluster_blocks);
  WARPCALL_DCHECK(grid.grid.blocks.x % static_cast<unsigned>(grid.cluster_blocks) == 0,
                  grid.grid.blocks.x, grid.cluster_blocks);
  RETURN_IF_ERROR(AllowSharedMemory(kernel, grid.grid.shared_bytes));
  if (grid.cluster_blocks > kClusterBlocksPortable)
    RETURN_IF_ERROR(
        ToStatus(cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1),
                 "allowing large clusters"));
  attribute->id = cudaLaunchAttributeClusterDimension;
  attribute->val.clusterDim.x = static_cast<unsigned>(grid.cluster_blocks);
  attribute->val.clusterDim.y = 1;
  attribute->val.clusterDim.z = 1;
  config->gridDim = grid.grid.blocks;
  config->blockDim = grid.grid.threads;
  config->dynamicSmemBytes = grid.grid.shared_bytes;
  config->attrs = attribute;
  config->numAttrs = 1;
  return absl::OkStatus();
}

template <typename... Parameters, typename... Arguments>
absl::Status LaunchClusters(void (*kernel)(Parameters...), const ClusterGrid& grid,
                            const LaunchContext& context, Arguments&&... arguments) {
  cudaLaunchAttribute attributes[2] = {};
  cudaLaunchConfig_t config = {};
  RETURN_IF_ERROR(Configure(reinterpret_cast<const void*>(kernel), grid, attributes, &config));
  if (grid.grid.early) attributes[config.numAttrs++] = EarlyAttribute();
  config.stream = StreamOf(context);
  return ToStatus(cudaLaunchKernelEx(&config, kernel, std::forward<Arguments>(arguments)...),
                  "launching a kernel of clusters");
}

// Clusters of `grid` that the current device holds at once, which depends on how its
// multiprocessors are grouped. UNIMPLEMENTED when it holds none. Without a device, where plans are
// made for one that is only described: `expected`.
inline absl::StatusOr<int64_t> ClustersAtOnce(const void* kernel, const ClusterGrid& grid,
                                              int64_t expected) {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    (void)cudaGetLastError();  // clears the error
    return std::max<int64_t>(1, expected);
  }
  cudaLaunchAttribute attribute = {};
  cudaLaunchConfig_t config = {};
  RETURN_IF_ERROR(Configure(kernel, grid, &attribute, &config));
  int clusters = 0;
  RETURN_IF_ERROR(ToStatus(cudaOccupancyMaxActiveClusters(&clusters, kernel, &config),
                           "asking how many clusters fit"));
  if (clusters > 0) return clusters;
  return absl::UnimplementedError(absl::StrCat("this device cannot hold a cluster of ",
                                               grid.cluster_blocks, " blocks of ",
                                               config.blockDim.x, " threads"));
}

}  // namespace warpcall::cuda
