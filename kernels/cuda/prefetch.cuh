// Asking for memory before the threads run that will load it.
#pragma once

#include <cstdint>

namespace warpcall::cuda {

// Brings what lies whole within `bytes` from `offset` on, in pieces of 16 bytes, to the L2 cache,
// in the order of memory: one request however much it is, which takes no registers and waits for
// nothing. `base` is aligned to 16 bytes and in global memory. Does nothing before compute
// capability 9.0 (cp.async.bulk.prefetch, PTX ISA 8.0).
__device__ inline void PrefetchToL2(const void* base, int64_t offset, int64_t bytes) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  constexpr int64_t kPiece = 16;
  const int64_t first = (offset + kPiece - 1) / kPiece * kPiece;
  const int64_t last = (offset + bytes) / kPiece * kPiece;
  if (last <= first) return;
  asm volatile(
      "cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(static_cast<const char*>(base) + first),
      "r"(static_cast<uint32_t>(last - first))
      : "memory");
#endif
}

// A row of a tensor that one block takes. Blocks start in the order of their numbers, so that the
// block which takes `row` starts about when the first that are resident end, if that is as far
// ahead as there are blocks at once: memory then works on while they wait for each other and write.
struct RowAhead {
  int64_t row;
  int64_t rows;
  int64_t row_bytes;

  // Called by one thread.
  __device__ void Prefetch(const void* tensor) const {
    if (row < rows) PrefetchToL2(tensor, row * row_bytes, row_bytes);
  }
};

}  // namespace warpcall::cuda
