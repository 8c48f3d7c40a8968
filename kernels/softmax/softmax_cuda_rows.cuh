// Rows that part of a warp, or a whole one, holds in registers: what subwarp_per_row and
// warp_per_row have in common. No barrier and no shared memory; the lanes of a row meet in
// shuffles. Memory is read once and written once.
#pragma once

#include <cstdint>

#include "kernels/cuda/early_launch.cuh"
#include "kernels/softmax/softmax_cuda_math.cuh"
#include "kernels/softmax/softmax_cuda_window.cuh"

namespace warpcall::softmax {

inline constexpr int kRowWarps = 4;  // in a block

// kThreads lanes share a row; each holds kVectors vectors of kWidth elements, of kRows rows, whose
// loads are all issued before the first is used.
template <int kThreadsIn, int kWidthIn, int kVectorsIn, int kRowsIn, bool kAlignedIn>
struct WarpTiling {
  static constexpr int kThreads = kThreadsIn;
  static constexpr int kWidth = kWidthIn;
  static constexpr int kVectors = kVectorsIn;
  static constexpr int kRows = kRowsIn;
  static constexpr bool kAligned = kAlignedIn;
  static constexpr int kRowsPerStep = 32 / kThreads;  // per warp; neighbouring rows
  static constexpr int kRowsPerBlock = kRowWarps * kRowsPerStep * kRows;
  static_assert(32 % kThreads == 0 && kRows >= 1);
};

template <typename Tiling, typename T>
__device__ void RowsInWarps(const RowTensor<T>& tensor) {
  using HeldRow = Held<T, Tiling::kWidth, Tiling::kVectors, Tiling::kThreads, Tiling::kAligned>;
  constexpr int kRows = Tiling::kRows;
  const int lane = threadIdx.x % Tiling::kThreads;
  const int64_t warp = BlockIndex() * kRowWarps + threadIdx.x / 32;
  const int64_t first = warp * (Tiling::kRowsPerStep * kRows) + threadIdx.x % 32 / Tiling::kThreads;
  Window<T> windows[kRows];
  typename HeldRow::Fetched fetched[kRows];
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    const int64_t row = first + i * Tiling::kRowsPerStep;
    windows[i] = row < tensor.rows ? WholeRow<Tiling::kWidth, Tiling::kAligned>(tensor, row)
                                   : EmptyWindow(tensor);
  }
  cuda::AwaitKernelAhead();
  cuda::LetNextKernelBegin();
#pragma unroll
  for (int i = 0; i < kRows; ++i)
    fetched[i] = HeldRow::template Fetch</*kPastL1=*/true>(windows[i], lane);
  // Also keeps the compiler from beginning with the first row before it asked for the others.
  if (warp * (Tiling::kRowsPerStep * kRows) >= tensor.rows) return;
  HeldRow held[kRows];
  float sum[kRows];
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    held[i].Take(fetched[i], windows[i], lane);
    const float max = MaxOfLanes<Tiling::kThreads>(held[i].Max());
    sum[i] = SumOfLanes<Tiling::kThreads>(held[i].Exponentiate(max));
  }
#pragma unroll
  for (int i = 0; i < kRows; ++i) held[i].Store(windows[i], lane, Reciprocal(sum[i]));
}

}  // namespace warpcall::softmax
