#include <cstdint>

#include "kernels/common/saturate.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/threads.cuh"
#include "kernels/matmul/matmul_cuda_pad.h"

namespace warpcall::matmul {
namespace {

constexpr int kThreads = 256;
constexpr int kWidth = 8;  // elements in 16 bytes

// A thread makes 16 bytes of the copy out of 8 elements that may lie anywhere: neighbouring threads
// read them out of the same lines, so that memory is read once.
__global__ void __launch_bounds__(kThreads)
    Pad(const uint16_t* from, uint4* to, PaddedRows rows, int64_t vectors) {
  const int64_t across = (rows.columns + kWidth - 1) / kWidth;
  const int64_t id = cuda::BlockIndex() * kThreads + threadIdx.x;
  if (id >= vectors) return;
  const int64_t row = id / across;
  const int64_t column = id % across * kWidth;
  const uint16_t* const at = from + row * rows.columns + column;
  uint32_t words[kWidth / 2];
#pragma unroll
  for (int i = 0; i < kWidth / 2; ++i) {
    const uint32_t low = column + 2 * i < rows.columns ? at[2 * i] : 0;
    const uint32_t high = column + 2 * i + 1 < rows.columns ? at[2 * i + 1] : 0;
    words[i] = high << 16 | low;
  }
  to[(row * rows.stride() + column) / kWidth] = make_uint4(words[0], words[1], words[2], words[3]);
}

}  // namespace

absl::Status EnqueuePad(const PaddedRows& rows, const void* from, void* to,
                        const LaunchContext& context) {
  const int64_t vectors = rows.rows * CeilDivide(rows.columns, kWidth);
  return cuda::Launch(Pad, cuda::GridOf(CeilDivide(vectors, kThreads), kThreads), context,
                      static_cast<const uint16_t*>(from), static_cast<uint4*>(to), rows, vectors);
}

}  // namespace warpcall::matmul
