// Covers a tensor with the tiles of elementwise.cuh.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "kernels/common/saturate.h"
#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/launch.h"
#include "proto/common/check.h"

namespace warpcall::cuda {

// Blocks side by side, `elements` a block. REQUIRES: count > 0.
inline Grid LinearGrid(int64_t count, int64_t elements, int threads) {
  WARPCALL_DCHECK(count > 0 && elements > 0 && CeilDivide(count, elements) <= kGridMax, count,
                  elements);
  return {.blocks = dim3(static_cast<unsigned>(CeilDivide(count, elements))),
          .threads = dim3(static_cast<unsigned>(threads))};
}

// UNIMPLEMENTED for more elements than LinearGrid can cover.
inline absl::Status CheckLinearGrid(int64_t count, int64_t elements, absl::string_view row) {
  const int64_t count_max = SaturatingMultiply(kGridMax, elements);
  if (count <= count_max) return absl::OkStatus();
  return absl::UnimplementedError(
      absl::StrCat(row, " takes up to ", count_max, " elements; here they are ", count));
}

}  // namespace warpcall::cuda
