// Tensor maps describe a tensor in global memory to Hopper's tensor memory accelerator, which
// copies boxes of it. A map holds the tensor's address, so it belongs to a launch, not a plan.
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

// The widest row of a box that can be swizzled.
inline constexpr size_t kMapRowBytes = 128;

// The box of one copy: rows that lie in shared memory one after the other, swizzled by 128 bytes or
// as they are. Elements outside a matrix arrive as zeros, and are not written.
struct MapBox {
  int rows;
  size_t row_bytes = kMapRowBytes;
  bool swizzled = true;
  CUtensorMapL2promotion promotion = CU_TENSOR_MAP_L2_PROMOTION_L2_256B;
};

// OK when a map of it can be made: UNIMPLEMENTED names what is too large, and the limit.
// REQUIRES: a row is a multiple of 16 bytes.
absl::Status CheckMap(const MatrixStack& stack);

// Some 50 ns. REQUIRES: CheckMap(stack) is OK, 0 < box.rows <= 256, data is aligned to 16 bytes,
// rows that are swizzled have kMapRowBytes.
absl::Status MakeMap(const MatrixStack& stack, const void* data, const MapBox& box,
                     CUtensorMap* map);

}  // namespace warpcall::cuda
