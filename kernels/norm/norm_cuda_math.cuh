// The arithmetic of layernorm and rmsnorm on a GPU: statistics of a part of a row, and their
// merging over lanes and warps.
#pragma once

#include <cstdint>

#include "kernels/cuda/threads.cuh"
#include "kernels/norm/norm_range.h"

namespace warpcall::norm {

using cuda::BlockIndex;
using cuda::MaxOfLanes;
using cuda::SumOfLanes;

// Elements of a part, their mean (0 where rows are not centred) and the sum of squares around it.
struct Part {
  float count;
  float mean;
  float squares;
};

// Merges two parts (Chan, Golub and LeVeque, 1979). Either may be empty.
__device__ inline Part Merge(const Part& a, const Part& b) {
  const float count = a.count + b.count;
  const float share = count > 0 ? b.count / count : 0;
  const float distance = b.mean - a.mean;
  return {count, a.mean + distance * share,
          a.squares + b.squares + distance * distance * a.count * share};
}

// Merges over groups of kLanes neighbouring lanes, a power of two; every lane gets the same. All 32
// lanes of the warp must call.
template <int kLanes>
__device__ Part MergeOfLanes(Part part) {
#pragma unroll
  for (int distance = kLanes / 2; distance > 0; distance /= 2) {
    const Part other = {__shfl_xor_sync(0xFFFFFFFFu, part.count, distance),
                        __shfl_xor_sync(0xFFFFFFFFu, part.mean, distance),
                        __shfl_xor_sync(0xFFFFFFFFu, part.squares, distance)};
    // Both lanes of a pair merge in one order, so that they have the same bits.
    part = (threadIdx.x & static_cast<unsigned>(distance)) == 0 ? Merge(part, other)
                                                                : Merge(other, part);
  }
  return part;
}

// Merges over a block of kThreads; every thread gets the same. `shared` holds one part a warp and
// is free again after the next barrier.
template <int kThreads>
__device__ Part MergeOfBlock(const Part& part, Part* shared) {
  constexpr int kWarps = kThreads / 32;
  const Part warp = MergeOfLanes<32>(part);
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = warp;
  __syncthreads();
  return MergeOfLanes<kWarps>(shared[threadIdx.x % kWarps]);
}

template <int kThreads>
__device__ float MaxOfBlock(float x, float* shared) {
  constexpr int kWarps = kThreads / 32;
  const float warp = MaxOfLanes<32>(x);
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = warp;
  __syncthreads();
  return MaxOfLanes<kWarps>(shared[threadIdx.x % kWarps]);
}

// Sums over a row, or over one thread's part of it: distances from some mean, and their
// squares.
struct Sums {
  float distances;
  float squares;
};

// Sums over groups of kLanes lanes, as SumOfLanes of floats does.
template <int kLanes>
__device__ Sums SumOfLanes(const Sums& x) {
  return {SumOfLanes<kLanes>(x.distances), SumOfLanes<kLanes>(x.squares)};
}

// Sums over a row, or over one thread's part of it, of float32 values, exact but for 2^-53.
struct DoubleSums {
  double values;
  double squares;
};

template <int kLanes>
__device__ DoubleSums SumOfLanes(DoubleSums x) {
#pragma unroll
  for (int distance = kLanes / 2; distance > 0; distance /= 2) {
    x.values += __shfl_xor_sync(0xFFFFFFFFu, x.values, distance);
    x.squares += __shfl_xor_sync(0xFFFFFFFFu, x.squares, distance);
  }
  return x;
}

// True where the double units do half of what float's do. On other GPUs they do 1/64.
#if defined(__CUDA_ARCH__) && \
    (__CUDA_ARCH__ == 800 || __CUDA_ARCH__ == 900 || __CUDA_ARCH__ == 1000)
inline constexpr bool kHasFastDouble = true;
#else
inline constexpr bool kHasFastDouble = false;
#endif

// Sums over a block of kThreads; every thread gets the same. `shared` holds one value a warp and is
// free again after the next barrier.
template <int kThreads, typename Value>
__device__ Value SumOfBlock(const Value& x, Value* shared) {
  constexpr int kWarps = kThreads / 32;
  const Value warp = SumOfLanes<32>(x);
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = warp;
  __syncthreads();
  return SumOfLanes<kWarps>(shared[threadIdx.x % kWarps]);
}

// A row's length in vectors and in elements, and a flag that is true if elements are taken around
// their mean.
struct Extent {
  int vectors;
  float n;
  bool centered;
};

// Normalises a row's elements: (x - mean) x reciprocal.
struct Normalizer {
  float mean;
  float reciprocal;
};

// A row's mean (0 where rows are not centred) and the sum of squares around it.
struct Moments {
  float mean;
  float squares;
};

// Stores the moments of n elements by their sums: the mean rounded once, and the squares around it.
// False where the mean is so large beside the distances that its square hides theirs: above 2^10
// standard deviations, where 2^-33 of the squares would be lost.
__device__ inline bool MomentsBy(const DoubleSums& sums, double n, Moments* moments) {
  const double mean = sums.values / n;
  const double squares = sums.squares - sums.values * mean;
  *moments = {static_cast<float>(mean), static_cast<float>(squares)};
  return squares * 0x1p20 > sums.squares;
}

// Corrects a rounded mean by `sums` of n elements around it, which give its error (Chan,
// Golub and LeVeque, 1983). Distances are rounded too, those of one binade all in one
// direction, by up to 2^-24 of their size: a mean that seems to be off by less is better left
// alone.
__device__ inline Moments Corrected(float mean, const Sums& sums, float n) {
  const float off = sums.distances / n;
  const float told = off * 0x1p24f;
  if (told * told * n <= sums.squares) return {mean, sums.squares};
  const float squares = sums.squares - sums.distances * off;
  return {mean + off, squares < 0 ? 0 : squares};  // and NaN stays
}

// 1 / sqrt(mean square + epsilon). The division and the root are rounded as IEEE says: there is one
// of each in a row.
__device__ inline float ReciprocalOf(float squares, float count, float epsilon) {
  return __frcp_rn(__fsqrt_rn(__fdiv_rn(squares, count) + epsilon));
}

}  // namespace warpcall::norm
