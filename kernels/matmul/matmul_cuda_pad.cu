#include <cstdint>

#include "kernels/common/saturate.h"
#include "kernels/cuda/launch.h"
#include "kernels/matmul/matmul_cuda_pad.cuh"
#include "kernels/matmul/matmul_cuda_pad.h"
#include "proto/common/check.h"

namespace warpcall::matmul {
namespace {

template <typename Word>
absl::Status EnqueuePadOf(const PaddedRows& rows, const CopyEnds& ends,
                          const LaunchContext& context) {
  const int64_t vectors = rows.rows * CeilDivide(rows.columns, 16 / sizeof(Word));
  return cuda::Launch(Pad<Word>, cuda::GridOf(CeilDivide(vectors, kPadThreads), kPadThreads),
                      context, static_cast<const Word*>(ends.from), static_cast<Word*>(ends.to),
                      rows, vectors);
}

}  // namespace

absl::Status EnqueuePad(const PaddedRows& rows, const CopyEnds& ends,
                        const LaunchContext& context) {
  WARPCALL_DCHECK(rows.element_bytes == 2 || rows.element_bytes == 4, rows.element_bytes);
  WARPCALL_DCHECK(rows.rows > 0 && rows.columns > 0, rows.rows, rows.columns);
  if (rows.element_bytes == sizeof(uint16_t)) return EnqueuePadOf<uint16_t>(rows, ends, context);
  return EnqueuePadOf<uint32_t>(rows, ends, context);
}

absl::Status EnqueueTurn(const PaddedRows& rows, int64_t matrices, const CopyEnds& ends,
                         const LaunchContext& context) {
  WARPCALL_DCHECK(rows.element_bytes == 4, rows.element_bytes);
  const int64_t blocks =
      matrices * CeilDivide(rows.columns, kTurnSide) * CeilDivide(rows.rows, kTurnSide);
  WARPCALL_DCHECK(blocks > 0 && blocks <= UINT32_MAX, blocks);
  return cuda::Launch(Turn, cuda::GridOf(blocks, kPadThreads), context,
                      static_cast<const uint32_t*>(ends.from), static_cast<uint32_t*>(ends.to),
                      rows, static_cast<uint32_t>(blocks));
}

}  // namespace warpcall::matmul
