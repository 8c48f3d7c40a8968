// The arithmetic of softmax on a GPU: exp, and the pair (maximum, sum) of parts of a row with its
// reductions over lanes and warps.
#pragma once

#include <cfloat>
#include <cmath>
#include <cstdint>

#include "kernels/cuda/threads.cuh"

namespace warpcall::softmax {

using cuda::BlockIndex;
using cuda::MaxOfLanes;
using cuda::SumOfLanes;

// Starting a maximum at a finite value makes rows of -infinity alone come out right without a
// branch: their sum is 0, and 0 x (1 / 0) is NaN. NaN may be lost in a maximum, never in the sum.
inline constexpr float kLowest = -FLT_MAX;

// e^x for x <= 0, 0 below 2^-126, as 2^(x log2 e). In units of 2^-24, relative: the product is
// off by 64 ln 2 at most where the result is normal (half a unit in the last place of 64 to 128),
// the constant by 19 (2^-26.2 of |x| <= 88), ex2.approx by 4.
__device__ inline float Exp(float x) {
  constexpr float kLog2E = 1.4426950408889634f;
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x * kLog2E));
  return result;
}

// Within 1 unit in the last place; infinity for 0.
__device__ inline float Reciprocal(float x) {
  float result;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

// Statistics of a part of a row: its maximum, at least kLowest, and sum(exp(x - max)). {kLowest, 0}
// for no elements.
struct MaxSum {
  float max;
  float sum;
};

// The values for both parts together (the online softmax of Milakov and Gimelshein, 2018).
__device__ inline MaxSum Merge(MaxSum a, MaxSum b) {
  const float max = fmaxf(a.max, b.max);
  return {max, a.sum * Exp(a.max - max) + b.sum * Exp(b.max - max)};
}

template <int kLanes>
__device__ MaxSum MergeOfLanes(MaxSum part) {
  const float max = MaxOfLanes<kLanes>(part.max);
  return {max, SumOfLanes<kLanes>(part.sum * Exp(part.max - max))};
}

// The factor that turns exp(x - part.max) into the result: the rest of the exponent, and the
// quotient.
__device__ inline float ScaleOf(float max, MaxSum row) {
  return Exp(max - row.max) * Reciprocal(row.sum);
}

// Merges over a block of kThreads; every thread gets the result. `shared` holds one pair a warp and
// is free again after the next barrier.
template <int kThreads>
__device__ MaxSum MergeOfBlock(MaxSum part, MaxSum* shared) {
  constexpr int kWarps = kThreads / 32;
  static_assert(kThreads % 32 == 0 && kWarps <= 32);
  const MaxSum warp = MergeOfLanes<32>(part);
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = warp;
  __syncthreads();
  return MergeOfLanes<kWarps>(shared[threadIdx.x % kWarps]);
}

}  // namespace warpcall::softmax
