// dot_per_output: a matrix times a vector. Every element of the matrix is used once, so reading is
// all there is to it: k x outer elements, by 16 bytes, several loads of a thread in flight. The
// vector and the sums are little beside it.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/cuda/device_check.cuh"
#include "kernels/cuda/vector.cuh"
#include "kernels/matmul/matmul_cuda_arguments.h"
#include "kernels/matmul/matmul_cuda_select.h"
#include "kernels/matmul/matmul_cuda_share.cuh"

namespace warpcall::matmul {

// The kernels see c[m] = a[m, k] x b[k], so n = 1: where the problem's m is 1 instead, its b
// transposed is their a and its a their b.
inline constexpr int kDotThreads = 256;
inline constexpr int kDotWarps = kDotThreads / 32;
// Loads of a thread in flight, along k and across rows. With 64 bytes a thread, 1024 threads have
// 64 KiB in flight, more than twice what a multiprocessor needs (4.3 TB/s x 0.7 us / 132 = 23 KiB).
inline constexpr int kDotUnroll = 4;
inline constexpr int kDotUnrollAcross = 8;

// Blocks of a multiprocessor among which the assembler shares the registers; 0 leaves it the
// choice, which is right for float32 along k (58). For the others it chose 36 to 40 and moved loads
// down to their uses, so that half of a thread's were in flight.
template <typename T, Adjacent kAdjacent>
inline constexpr int kDotBlocks = kAdjacent == Adjacent::kOuter || sizeof(T) == 2 ? 4 : 0;

// The layout of a block's threads on the matrix, in vectors of kWidth elements. If k is adjacent, a
// warp walks along each of 8 rows. Otherwise 8 vectors, or 32 elements, lie side by side, a line of
// 128 bytes or two sectors and more, and the rest of the threads lie along k.
template <Adjacent kAdjacent, int kWidth>
struct DotWalk {
  static constexpr bool kByOuter = kAdjacent == Adjacent::kDepth;
  static constexpr int kAcross = kByOuter ? 32 : (kWidth == 1 ? 32 : 8);  // threads side by side
  static constexpr int kRows = kDotThreads / kAcross;
  static constexpr int kOutputs = kByOuter ? kRows : kAcross * kWidth;
};

template <int kWidth>
__device__ float SumOfProducts(const float (&a)[kWidth], const float (&b)[kWidth], float sum) {
#pragma unroll
  for (int i = 0; i < kWidth; ++i) sum = fmaf(a[i], b[i], sum);
  return sum;
}

// Writes one output, or the part that this block has of it.
template <typename T, typename Finish>
__device__ void StoreDot(const Arguments& arguments, int64_t offset, float sum,
                         const Finish& finish) {
  if (arguments.splits > 1) {
    arguments.partial[offset] = sum;
    return;
  }
  if constexpr (!std::is_same_v<Finish, NoFinish>) sum = finish.OfOutput(offset, sum);
  static_cast<T*>(arguments.c)[offset] = cuda::Narrow<T>(sum);
}

// k adjacent: a warp per output. REQUIRES: with kWidth > 1, k and all splits are multiples of it.
template <typename T, int kWidth, typename Finish>
__device__ void DotAlongRows(const Arguments& arguments, const BlockShare& share,
                             const Finish& finish) {
  WARPCALL_DEVICE_CHECK(share.k_begin % kWidth == 0 && share.k_end % kWidth == 0);
  using Vector = cuda::Vector<T, kWidth>;
  const int lane = threadIdx.x % 32;
  const int64_t output = share.m + threadIdx.x / 32;
  if (output >= arguments.m) return;
  const T* const row = static_cast<const T*>(arguments.a) + share.a + output * arguments.a_stride;
  const T* const vector = static_cast<const T*>(arguments.b) + share.b;
  constexpr int kStep = 32 * kWidth;
  float sums[kDotUnroll] = {};
  int64_t p = share.k_begin + lane * kWidth;
  for (; p + (kDotUnroll - 1) * kStep < share.k_end; p += kDotUnroll * kStep) {
    Vector matrix[kDotUnroll];
#pragma unroll
    for (int u = 0; u < kDotUnroll; ++u) matrix[u] = Vector::LoadStreaming(row + p + u * kStep);
#pragma unroll
    for (int u = 0; u < kDotUnroll; ++u) {
      float a[kWidth], b[kWidth];
      matrix[u].Unpack(a);
      Vector::Load(vector + p + u * kStep).Unpack(b);
      sums[u] = SumOfProducts(a, b, sums[u]);
    }
  }
  for (; p < share.k_end; p += kStep) {
    float a[kWidth], b[kWidth];
    Vector::LoadStreaming(row + p).Unpack(a);
    Vector::Load(vector + p).Unpack(b);
    sums[0] = SumOfProducts(a, b, sums[0]);
  }
  float sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
  static_assert(kDotUnroll == 4);
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2)
    sum += __shfl_xor_sync(0xFFFFFFFFu, sum, distance);
  if (lane == 0) StoreDot<T>(arguments, share.c + output, sum, finish);
}

// The outer index adjacent: a thread keeps kWidth outputs, the block's rows take turns along k and
// meet in shared memory, `meeting`, [kDotWarps][kOutputs].
template <typename T, int kWidth>
__device__ void DotAcrossRows(const Arguments& arguments, const BlockShare& share, float* meeting) {
  using Vector = cuda::Vector<T, kWidth>;
  using Walk = DotWalk<Adjacent::kOuter, kWidth>;
  const int column = threadIdx.x % Walk::kAcross * kWidth;
  const int row = threadIdx.x / Walk::kAcross;
  const bool valid = share.m + column < arguments.m;
  const T* const matrix = static_cast<const T*>(arguments.a) + share.a + share.m + column;
  const T* const vector = static_cast<const T*>(arguments.b) + share.b;
  float sums[kWidth] = {};
  const auto add = [&](const Vector& loaded, T factor) {
    float values[kWidth];
    loaded.Unpack(values);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) sums[i] = fmaf(values[i], cuda::Widen(factor), sums[i]);
  };
  // Without conditions on rows, since a load under one waits for its use.
  const int64_t end = valid ? share.k_end : 0;
  int64_t p = share.k_begin + row;
  for (; p + (kDotUnrollAcross - 1) * Walk::kRows < end; p += kDotUnrollAcross * Walk::kRows) {
    Vector loaded[kDotUnrollAcross];
    T factors[kDotUnrollAcross];
#pragma unroll
    for (int u = 0; u < kDotUnrollAcross; ++u)
      loaded[u] = Vector::LoadStreaming(matrix + (p + u * Walk::kRows) * arguments.a_stride);
#pragma unroll
    for (int u = 0; u < kDotUnrollAcross; ++u) factors[u] = vector[p + u * Walk::kRows];
#pragma unroll
    for (int u = 0; u < kDotUnrollAcross; ++u) add(loaded[u], factors[u]);
  }
  for (; p < end; p += Walk::kRows)
    add(Vector::LoadStreaming(matrix + p * arguments.a_stride), vector[p]);
#pragma unroll
  for (int i = 0; i < kWidth; ++i) {
#pragma unroll
    for (int distance = 16; distance >= Walk::kAcross; distance /= 2)
      sums[i] += __shfl_xor_sync(0xFFFFFFFFu, sums[i], distance);
    if (threadIdx.x % 32 < Walk::kAcross)
      meeting[threadIdx.x / 32 * Walk::kOutputs + column + i] = sums[i];
  }
  __syncthreads();
  const int output = threadIdx.x;
  if (output >= Walk::kOutputs || share.m + output >= arguments.m) return;
  float sum = 0;
#pragma unroll
  for (int warp = 0; warp < kDotWarps; ++warp) sum += meeting[warp * Walk::kOutputs + output];
  StoreDot<T>(arguments, share.c + share.m + output, sum, NoFinish{});
}

template <typename T, Adjacent kAdjacent, int kWidth>
__global__ void __launch_bounds__(kDotThreads, (kDotBlocks<T, kAdjacent>))
    DotPerOutput(const __grid_constant__ Arguments arguments) {
  using Walk = DotWalk<kAdjacent, kWidth>;
  const BlockShare share = ShareOfBlock<Walk::kOutputs, 1>(arguments, blockIdx.x);
  if constexpr (kAdjacent == Adjacent::kDepth) {
    DotAlongRows<T, kWidth>(arguments, share, NoFinish{});
  } else {
    __shared__ float meeting[kDotWarps * Walk::kOutputs];
    DotAcrossRows<T, kWidth>(arguments, share, meeting);
  }
}

}  // namespace warpcall::matmul
