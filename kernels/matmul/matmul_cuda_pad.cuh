// The kernels of matmul_cuda_pad.h.
#pragma once

#include <cstdint>

#include "kernels/cuda/device_check.cuh"
#include "kernels/cuda/joined.cuh"
#include "kernels/cuda/threads.cuh"
#include "kernels/matmul/matmul_cuda_pad.h"

namespace warpcall::matmul {

inline constexpr int kPadThreads = 256;
inline constexpr int kPadVectors = 2;  // of a thread

// A copy as its threads see it.
struct PadJob {
  const char* from;
  char* to;
  int64_t from_bytes;
  int64_t row_bytes;
  int64_t stride_bytes;
  uint32_t vectors;  // of 16 bytes, in all rows of the copy
  uint32_t across;   // of them, in a row

  uint32_t blocks() const {
    return static_cast<uint32_t>(CeilDivide(vectors, kPadThreads * kPadVectors));
  }
};

inline PadJob PadJobOf(const Padding& copy) {
  const PaddedRows& rows = copy.rows;
  const auto bytes = static_cast<int64_t>(rows.element_bytes);
  const int64_t across = CeilDivide(rows.columns * bytes, 16);
  return {.from = static_cast<const char*>(copy.ends.from),
          .to = static_cast<char*>(copy.ends.to),
          .from_bytes = rows.rows * rows.columns * bytes,
          .row_bytes = rows.columns * bytes,
          .stride_bytes = rows.stride() * bytes,
          .vectors = static_cast<uint32_t>(rows.rows * across),
          .across = static_cast<uint32_t>(across)};
}

// Blocks of the first copy, then those of the second.
struct PadJobs {
  PadJob of[2];
  uint32_t first_blocks;
};

// The bytes of a vector's elements that lie in the source, one by one; the others are zeros.
template <typename Word>
__device__ uint4 LoadElements(const char* from, int64_t bytes) {
  struct alignas(16) {
    Word words[16 / sizeof(Word)];
  } vector;
#pragma unroll
  for (int i = 0; i < static_cast<int>(16 / sizeof(Word)); ++i)
    vector.words[i] = i * static_cast<int64_t>(sizeof(Word)) < bytes
                          ? reinterpret_cast<const Word*>(from)[i]
                          : Word{0};
  return *reinterpret_cast<const uint4*>(vector.words);
}

// A thread makes vectors of the copy, each of two aligned vectors of the source: its neighbour
// reads the second of them, too, so that memory is read once. Its loads are under way at once.
template <typename Word>
__global__ void __launch_bounds__(kPadThreads) Pad(const __grid_constant__ PadJobs jobs) {
  const auto block = static_cast<uint32_t>(cuda::BlockIndex());
  const bool is_second = block >= jobs.first_blocks;
  const PadJob& job = jobs.of[is_second];
  const uint32_t begin = block - (is_second ? jobs.first_blocks : 0);
  const uint32_t id = begin * kPadThreads * kPadVectors + threadIdx.x;
  const uint32_t row_step = kPadThreads / job.across;
  const uint32_t vector_step = kPadThreads % job.across;
  uint32_t row = id / job.across;
  uint32_t vector = id % job.across;
  uint4 low[kPadVectors], high[kPadVectors];
  char* to[kPadVectors] = {};
  uint32_t start[kPadVectors];
#pragma unroll
  for (int i = 0; i < kPadVectors; ++i) {
    if (id + i * kPadThreads >= job.vectors) break;
    const int64_t left = job.row_bytes - vector * int64_t{16};
    const int64_t at = row * job.row_bytes + vector * int64_t{16};
    to[i] = job.to + row * job.stride_bytes + vector * int64_t{16};
    start[i] = static_cast<uint32_t>(at % 16);
    const char* const aligned = job.from + at - start[i];
    if (left < 16 || at - start[i] + 32 > job.from_bytes) {
      low[i] = LoadElements<Word>(job.from + at, left);
      start[i] = 0;
    } else {
      low[i] = *reinterpret_cast<const uint4*>(aligned);
      if (start[i] > 0) high[i] = *reinterpret_cast<const uint4*>(aligned + 16);
    }
    vector += vector_step;
    row += row_step;
    if (vector >= job.across) {
      vector -= job.across;
      ++row;
    }
  }
#pragma unroll
  for (int i = 0; i < kPadVectors; ++i)
    if (to[i] != nullptr)
      *reinterpret_cast<uint4*>(to[i]) =
          start[i] == 0 ? low[i] : cuda::Joined(low[i], high[i], start[i]);
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
