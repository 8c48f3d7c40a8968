// The place of a thread, and reductions over its neighbours.
#pragma once

#include <cstdint>

namespace warpcall::cuda {

// The number of this block in a grid of GridOf.
__device__ inline int64_t BlockIndex() {
  return static_cast<int64_t>(blockIdx.y) * gridDim.x + blockIdx.x;
}

// Reduces over groups of kLanes neighbouring lanes, a power of two; every lane gets the result. All
// 32 lanes of the warp must call.
template <int kLanes>
__device__ float MaxOfLanes(float x) {
  static_assert(kLanes >= 1 && kLanes <= 32 && (kLanes & (kLanes - 1)) == 0);
#pragma unroll
  for (int distance = kLanes / 2; distance > 0; distance /= 2)
    x = fmaxf(x, __shfl_xor_sync(0xFFFFFFFFu, x, distance));
  return x;
}

// Reduces as MaxOfLanes does.
template <int kLanes>
__device__ float SumOfLanes(float x) {
  static_assert(kLanes >= 1 && kLanes <= 32 && (kLanes & (kLanes - 1)) == 0);
#pragma unroll
  for (int distance = kLanes / 2; distance > 0; distance /= 2)
    x += __shfl_xor_sync(0xFFFFFFFFu, x, distance);
  return x;
}

}  // namespace warpcall::cuda
