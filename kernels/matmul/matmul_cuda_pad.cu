#include <cstdint>

#include "kernels/common/saturate.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/threads.cuh"
#include "kernels/matmul/matmul_cuda_pad.h"

namespace warpcall::matmul {
namespace {

constexpr int kThreads = 256;

// A thread makes 16 bytes of the copy out of elements that may lie anywhere: neighbouring threads
// read them out of the same lines, so that memory is read once.
template <typename Word>
__global__ void __launch_bounds__(kThreads)
    Pad(const Word* from, Word* to, PaddedRows rows, int64_t vectors) {
  constexpr int kWidth = 16 / sizeof(Word);
  struct alignas(16) Vector {
    Word words[kWidth];
  };
  const int64_t across = (rows.columns + kWidth - 1) / kWidth;
  const int64_t id = cuda::BlockIndex() * kThreads + threadIdx.x;
  if (id >= vectors) return;
  const int64_t row = id / across;
  const int64_t column = id % across * kWidth;
  const Word* const at = from + row * rows.columns + column;
  Vector vector;
#pragma unroll
  for (int i = 0; i < kWidth; ++i) vector.words[i] = column + i < rows.columns ? at[i] : Word{0};
  *reinterpret_cast<Vector*>(to + row * rows.stride() + column) = vector;
}

template <typename Word>
absl::Status EnqueuePadOf(const PaddedRows& rows, const CopyEnds& ends,
                          const LaunchContext& context) {
  const int64_t vectors = rows.rows * CeilDivide(rows.columns, 16 / sizeof(Word));
  return cuda::Launch(Pad<Word>, cuda::GridOf(CeilDivide(vectors, kThreads), kThreads), context,
                      static_cast<const Word*>(ends.from), static_cast<Word*>(ends.to), rows,
                      vectors);
}

constexpr int kSide = 32;
constexpr int kTurnRows = kThreads / kSide;  // that a pass of a block's threads takes

// A block turns 32 x 32 elements through shared memory, whose rows are an element longer, so that
// neither way meets a bank twice.
__global__ void __launch_bounds__(kThreads)
    Turn(const uint32_t* from, uint32_t* to, PaddedRows rows, int64_t blocks) {
  __shared__ uint32_t tile[kSide][kSide + 1];
  const int64_t across = (rows.columns + kSide - 1) / kSide;
  const int64_t down = (rows.rows + kSide - 1) / kSide;
  const int64_t block = cuda::BlockIndex();
  if (block >= blocks) return;
  const int64_t matrix = block / (across * down);
  const int64_t column = block % across * kSide;  // of the copy; a row of what is read
  const int64_t row = block / across % down * kSide;
  const int lane = static_cast<int>(threadIdx.x) % kSide;
  const uint32_t* const source = from + matrix * rows.rows * rows.columns;
  for (int i = static_cast<int>(threadIdx.x) / kSide; i < kSide; i += kTurnRows)
    if (column + i < rows.columns && row + lane < rows.rows)
      tile[i][lane] = source[(column + i) * rows.rows + row + lane];
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x) / kSide; i < kSide; i += kTurnRows)
    if (row + i < rows.rows && column + lane < rows.columns)
      to[(matrix * rows.rows + row + i) * rows.stride() + column + lane] = tile[lane][i];
}

}  // namespace

absl::Status EnqueuePad(const PaddedRows& rows, const CopyEnds& ends,
                        const LaunchContext& context) {
  if (rows.element_bytes == sizeof(uint16_t)) return EnqueuePadOf<uint16_t>(rows, ends, context);
  return EnqueuePadOf<uint32_t>(rows, ends, context);
}

absl::Status EnqueueTurn(const PaddedRows& rows, int64_t matrices, const CopyEnds& ends,
                         const LaunchContext& context) {
  const int64_t blocks = matrices * CeilDivide(rows.columns, kSide) * CeilDivide(rows.rows, kSide);
  return cuda::Launch(Turn, cuda::GridOf(blocks, kThreads), context,
                      static_cast<const uint32_t*>(ends.from), static_cast<uint32_t*>(ends.to),
                      rows, blocks);
}

}  // namespace warpcall::matmul
