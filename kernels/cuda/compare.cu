#include <cuda_runtime.h>

#include <algorithm>

#include "kernels/cuda/compare.h"
#include "kernels/cuda/launch.h"

namespace warpcall::cuda {
namespace {

constexpr int kThreads = 256;
// More would not be faster: each block has several loads under way.
constexpr int64_t kBlocksMax = 1024;

__global__ void Compare(Memories memories, uint32_t* differs) {
  const size_t first = blockIdx.x * size_t{kThreads} + threadIdx.x;
  const size_t vectors = memories.bytes / sizeof(uint4);
  const auto* const a = static_cast<const uint4*>(memories.a);
  const auto* const b = static_cast<const uint4*>(memories.b);
  uint32_t difference = 0;
  for (size_t i = first; i < vectors; i += gridDim.x * size_t{kThreads})
    difference |= (a[i].x ^ b[i].x) | (a[i].y ^ b[i].y) | (a[i].z ^ b[i].z) | (a[i].w ^ b[i].w);
  const size_t rest = vectors * sizeof(uint4) + first;
  if (rest < memories.bytes)
    difference |=
        static_cast<const char*>(memories.a)[rest] != static_cast<const char*>(memories.b)[rest];
  if (__syncthreads_or(difference != 0) && threadIdx.x == 0) *differs = 1;
}

}  // namespace

absl::Status EnqueueCompare(cudaStream_t stream, const Memories& memories, uint32_t* differs) {
  WARPCALL_DCHECK(reinterpret_cast<uintptr_t>(memories.a) % sizeof(uint4) == 0 &&
                  reinterpret_cast<uintptr_t>(memories.b) % sizeof(uint4) == 0);
  if (memories.bytes == 0) return absl::OkStatus();
  const int64_t blocks =
      CeilDivide(static_cast<int64_t>(memories.bytes), int64_t{sizeof(uint4)} * kThreads);
  return Launch(Compare, GridOf(std::min(blocks, kBlocksMax), kThreads), {.stream = stream},
                memories, differs);
}

}  // namespace warpcall::cuda
