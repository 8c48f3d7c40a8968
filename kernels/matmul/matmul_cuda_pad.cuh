// The kernels of matmul_cuda_pad.h.
#pragma once

#include <cstdint>

#include "kernels/cuda/device_check.cuh"
#include "kernels/cuda/threads.cuh"
#include "kernels/matmul/matmul_cuda_pad.h"

namespace warpcall::matmul {

inline constexpr int kPadThreads = 256;

// A thread makes 16 bytes of the copy out of elements that may lie anywhere: neighbouring threads
// read them out of the same lines, so that memory is read once.
template <typename Word>
__global__ void __launch_bounds__(kPadThreads)
    Pad(const Word* from, Word* to, PaddedRows rows, int64_t vectors) {
  constexpr int kWidth = 16 / sizeof(Word);
  WARPCALL_DEVICE_CHECK(rows.element_bytes == sizeof(Word), rows.element_bytes);
  struct alignas(16) Vector {
    Word words[kWidth];
  };
  const int64_t across = (rows.columns + kWidth - 1) / kWidth;
  const int64_t id = cuda::BlockIndex() * kPadThreads + threadIdx.x;
  if (id >= vectors) return;
  const int64_t row = id / across;
  const int64_t column = id % across * kWidth;
  const Word* const at = from + row * rows.columns + column;
  Vector vector;
#pragma unroll
  for (int i = 0; i < kWidth; ++i) vector.words[i] = column + i < rows.columns ? at[i] : Word{0};
  *reinterpret_cast<Vector*>(to + row * rows.stride() + column) = vector;
}

inline constexpr int kTurnSide = 64;
inline constexpr int kTurnRows =
    kPadThreads / 32;  // warps, each of which takes a row in two halves

// A block turns 64 x 64 elements through shared memory, whose rows are an element longer, so that
// neither way meets a bank twice. A thread's 16 loads are under way at once. REQUIRES: fewer than
// 2^32 blocks, of 16 KiB each.
static __global__ void __launch_bounds__(kPadThreads)
    Turn(const uint32_t* from, uint32_t* to, PaddedRows rows, uint32_t blocks) {
  constexpr int kPasses = kTurnSide / kTurnRows;
  WARPCALL_DEVICE_CHECK(rows.element_bytes == sizeof(uint32_t), rows.element_bytes);
  __shared__ uint32_t tile[kTurnSide][kTurnSide + 1];
  const auto block = static_cast<uint32_t>(cuda::BlockIndex());
  if (block >= blocks) return;
  const auto across = static_cast<uint32_t>((rows.columns + kTurnSide - 1) / kTurnSide);
  const auto down = static_cast<uint32_t>((rows.rows + kTurnSide - 1) / kTurnSide);
  WARPCALL_DEVICE_CHECK(blocks % (across * down) == 0, blocks, across, down);
  const int64_t matrix = block / across / down;
  const int64_t column = int64_t{block % across} * kTurnSide;  // in the copy; a row in the source
  const int64_t row = int64_t{block / across % down} * kTurnSide;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const uint32_t* const source =
      from + (matrix * rows.columns + column + warp) * rows.rows + row + lane;
  uint32_t words[kPasses][2] = {};
#pragma unroll
  for (int i = 0; i < kPasses; ++i)
#pragma unroll
    for (int half = 0; half < 2; ++half)
      if (column + warp + i * kTurnRows < rows.columns && row + lane + half * 32 < rows.rows)
        words[i][half] = source[i * kTurnRows * rows.rows + half * 32];
#pragma unroll
  for (int i = 0; i < kPasses; ++i)
#pragma unroll
    for (int half = 0; half < 2; ++half)
      tile[warp + i * kTurnRows][lane + half * 32] = words[i][half];
  __syncthreads();
  const int64_t stride = rows.stride();
  uint32_t* const target = to + (matrix * rows.rows + row + warp) * stride + column + lane;
#pragma unroll
  for (int i = 0; i < kPasses; ++i)
#pragma unroll
    for (int half = 0; half < 2; ++half)
      if (row + warp + i * kTurnRows < rows.rows && column + lane + half * 32 < rows.columns)
        target[i * kTurnRows * stride + half * 32] = tile[lane + half * 32][warp + i * kTurnRows];
}

}  // namespace warpcall::matmul
