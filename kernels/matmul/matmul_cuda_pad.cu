#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/common/saturate.h"
#include "kernels/cuda/launch.h"
#include "kernels/matmul/matmul_cuda_pad.cuh"
#include "kernels/matmul/matmul_cuda_pad.h"
#include "proto/common/check.h"

namespace warpcall::matmul {
absl::Status EnqueuePad(std::span<const Padding> copies, const LaunchContext& context) {
  WARPCALL_DCHECK(copies.size() == 1 || copies.size() == 2, copies.size());
  PadJobs jobs = {};
  int64_t blocks = 0;
  for (size_t i = 0; i < copies.size(); ++i) {
    const PaddedRows& rows = copies[i].rows;
    WARPCALL_DCHECK(rows.rows > 0 && rows.columns > 0, rows.rows, rows.columns);
    WARPCALL_DCHECK(rows.element_bytes == copies[0].rows.element_bytes, rows.element_bytes);
    if (rows.bytes() >> 35 != 0) return absl::InternalError("a padded copy has 32 GiB or more");
    jobs.of[i] = PadJobOf(copies[i]);
    blocks += jobs.of[i].blocks();
    if (i == 0) jobs.first_blocks = static_cast<uint32_t>(blocks);
  }
  return cuda::Launch(
      copies[0].rows.element_bytes == sizeof(uint16_t) ? Pad<uint16_t> : Pad<uint32_t>,
      cuda::GridOf(blocks, kPadThreads), context, jobs);
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
