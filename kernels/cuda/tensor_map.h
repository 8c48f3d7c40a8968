// Tensor maps: what Hopper's tensor memory accelerator is told about a tensor in global memory that
// it copies boxes of. A map holds the tensor's address, so that it belongs to a launch, not a plan.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "kernels/op.h"

namespace warpcall::cuda {

// `matrices` of rows x columns elements, columns adjacent; rows follow each other
// `row_elements` apart, matrices rows * row_elements.
struct MatrixStack {
  DataType data_type;
  int64_t columns;
  int64_t rows;
  int64_t matrices;
  int64_t row_elements;
};

// Boxes of box_rows rows of 128 bytes, which lie in shared memory row after row with the 128-byte
// swizzle. What lies outside a matrix arrives as zeros, and is not written.
inline constexpr size_t kMapRowBytes = 128;

// OK when a map of it can be made: UNIMPLEMENTED names what is too large, and the limit.
// REQUIRES: a row is a multiple of 16 bytes.
absl::Status CheckMap(const MatrixStack& stack);

// Some 50 ns. REQUIRES: CheckMap(stack) is OK, 0 < box_rows <= 256, data is aligned to 16 bytes.
absl::Status MakeMap(const MatrixStack& stack, const void* data, int box_rows, CUtensorMap* map);

}  // namespace warpcall::cuda
