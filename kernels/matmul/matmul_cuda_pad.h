// Copies of operands whose rows the tensor memory accelerator cannot take, as they do not begin at
// multiples of 16 bytes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "kernels/common/saturate.h"
#include "kernels/op.h"

namespace warpcall::matmul {

// Rows of `columns` elements of 16 bits, one after the other.
struct PaddedRows {
  int64_t rows;
  int64_t columns;

  // The copy's rows are this far apart: at multiples of 128 bytes, the lines of L2, or where rows
  // are short of 16 bytes, so that the copy is at most 8 times as large.
  constexpr int64_t stride() const {
    const int64_t unit = columns < 512 ? 8 : 64;
    return CeilDivide(columns, unit) * unit;
  }
  // Of the copy.
  constexpr size_t bytes() const {
    return SaturatingBytes(SaturatingMultiply(rows, stride()), sizeof(uint16_t));
  }
};

// Enqueues the copy. What follows a row up to the next multiple of 16 bytes becomes zeros, the rest
// of the gap stays as it is.
absl::Status EnqueuePad(const PaddedRows& rows, const void* from, void* to,
                        const LaunchContext& context);

}  // namespace warpcall::matmul
