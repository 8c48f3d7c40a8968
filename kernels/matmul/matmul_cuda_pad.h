// Copies of operands that the tensor memory accelerator or the tensor cores cannot take as they
// lie: rows that do not begin at multiples of 16 bytes, or go along the wrong index.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "kernels/common/saturate.h"
#include "kernels/cuda/device_check.cuh"
#include "kernels/op.h"

namespace warpcall::matmul {

// Rows of a copy, `columns` elements of 2 or 4 bytes each.
struct PaddedRows {
  int64_t rows;
  int64_t columns;
  size_t element_bytes;

  // Elements between rows: a multiple of 128 bytes, the lines of L2, or of 16 bytes where rows are
  // short, so that the copy is at most 8 times as large.
  constexpr int64_t stride() const {
    WARPCALL_DEVICE_CHECK(columns > 0 && (element_bytes == 2 || element_bytes == 4), columns);
    const auto bytes = static_cast<int64_t>(element_bytes);
    const int64_t unit = columns < 1024 / bytes ? 16 / bytes : 128 / bytes;
    return CeilDivide(columns, unit) * unit;
  }
  // Bytes of the copy.
  constexpr size_t bytes() const {
    return SaturatingBytes(SaturatingMultiply(rows, stride()), element_bytes);
  }
};

struct CopyEnds {
  const void* from;
  void* to;
};

// A copy of adjacent rows. The gap after a row becomes zeros up to the next multiple of 16 bytes;
// the rest of the gap stays as it is.
struct Padding {
  PaddedRows rows;
  CopyEnds ends;
};

// Enqueues one or two such copies, of elements of the same size, as one kernel. INTERNAL for copies
// of 2^31 vectors, 32 GiB, and more.
absl::Status EnqueuePad(std::span<const Padding> copies, const LaunchContext& context);

// Enqueues the transposed copy of `matrices` adjacent matrices: rows.rows x rows.columns of each
// copy are columns and rows of the source. REQUIRES: elements of 4 bytes.
absl::Status EnqueueTurn(const PaddedRows& rows, int64_t matrices, const CopyEnds& ends,
                         const LaunchContext& context);

}  // namespace warpcall::matmul
