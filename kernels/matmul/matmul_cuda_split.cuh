// The second kernel of a multiplication whose sums were cut: adds up the partial sums.
#pragma once

#include <cstdint>

#include "kernels/cuda/vector.cuh"

namespace warpcall::matmul {

inline constexpr int kSumSplitsThreads = 256;

// c[i] = partial[0][i] + partial[1][i] + ..., always in this order, so that results repeat bit by
// bit. Reads splits x count floats, which the first kernel has just left in L2, and writes count
// elements; a warp touches whole lines of both.
template <typename T>
__global__ void __launch_bounds__(kSumSplitsThreads)
    SumSplits(const float* __restrict__ partial, uint32_t splits, int64_t count,
              T* __restrict__ c) {
  const int64_t i = int64_t{1} * blockIdx.x * kSumSplitsThreads + threadIdx.x;
  if (i >= count) return;
  float sum = partial[i];
  for (uint32_t split = 1; split < splits; ++split) sum += partial[split * count + i];
  c[i] = cuda::Narrow<T>(sum);
}

}  // namespace warpcall::matmul
