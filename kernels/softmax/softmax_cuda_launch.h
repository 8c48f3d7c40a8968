// What the launchers of softmax's GPU rows share on the host.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "kernels/common/saturate.h"
#include "kernels/common/status_macros.h"
#include "kernels/cuda/launch.h"
#include "kernels/softmax/softmax.h"
#include "kernels/softmax/softmax_cuda_select.h"

namespace warpcall::softmax {

// Any number of blocks that a tensor in memory can need: those beyond the limit of x go on in y,
// and the last y may have blocks left over, which must do nothing. Kernels get their number from
// BlockIndex(). More than kGridMax x 65535 blocks, 2^47, are refused by the launch itself.
inline cuda::Grid GridOf(int64_t blocks, int threads) {
  const int64_t x = std::min(blocks, cuda::kGridMax);
  return {.blocks = dim3(static_cast<unsigned>(x), static_cast<unsigned>(CeilDivide(blocks, x))),
          .threads = dim3(static_cast<unsigned>(threads))};
}

// Calls body(std::integral_constant<int, index>): from an index into a table of shapes to the code
// compiled for it. REQUIRES: 0 <= index < kCount.
template <int kCount, typename Body>
auto DispatchIndex(int index, const Body& body) {
  if constexpr (kCount > 1) {
    if (index < kCount - 1) return DispatchIndex<kCount - 1>(index, body);
  }
  return body(std::integral_constant<int, kCount - 1>{});
}

template <typename T>
RowTensor<T> TensorOf(const Problem& problem, const Operands& operands) {
  const View view = ViewOf(problem);
  return {static_cast<const T*>(operands.inputs[0]), static_cast<T*>(operands.outputs[0]),
          view.rows(), view.n};
}

inline absl::Status CheckContiguous(const View& view, absl::string_view row) {
  if (view.inner == 1) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat(row,
                                               " takes rows of contiguous elements; here they are ",
                                               view.inner, " elements apart (limit 1)"));
}

// UNIMPLEMENTED, with its limits, for rows that PlanRow does not give to `method`, whose rows are
// windows.
inline absl::Status CheckWindowedRow(const Problem& problem, RowMethod method,
                                     absl::string_view row) {
  if (problem.inputs[0].elements() == 0) return absl::OkStatus();
  const View view = ViewOf(problem);
  RETURN_IF_ERROR(CheckContiguous(view, row));
  const size_t element_bytes = ElementBytes(problem.inputs[0].data_type);
  if (PlanRow(view.n, element_bytes).method == method) return absl::OkStatus();
  const LengthRange lengths = LengthsOf(method);
  const int width = WidestVector(element_bytes);
  return absl::UnimplementedError(
      absl::StrCat(row, " takes rows of ", lengths.shortest, " to ", lengths.longest,
                   " elements (those that are no multiple of ", width, " and within ", width - 1,
                   " of the upper limit go to the next method); here they have ", view.n));
}

}  // namespace warpcall::softmax
