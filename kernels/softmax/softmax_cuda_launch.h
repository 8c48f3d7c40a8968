// Shared on the host by the launchers of softmax's GPU implementations.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "kernels/common/saturate.h"
#include "kernels/cuda/early_launch.h"
#include "kernels/cuda/launch.h"
#include "kernels/softmax/softmax.h"
#include "kernels/softmax/softmax_cuda_select.h"
#include "proto/common/status_macros.h"

namespace warpcall::softmax {

using cuda::DispatchIndex;
using cuda::GridOf;

template <typename T>
RowTensor<T> TensorOf(const View& view, const Operands& operands) {
  return {static_cast<const T*>(operands.inputs[0]), static_cast<T*>(operands.outputs[0]),
          view.rows(), view.n};
}

inline absl::Status CheckContiguous(const View& view, absl::string_view row) {
  if (view.inner == 1) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat(row,
                                               " takes rows of contiguous elements; here they are ",
                                               view.inner, " elements apart (limit 1)"));
}

// UNIMPLEMENTED, with the method's limits, if PlanRow does not choose `method` for the problem's
// rows. The method takes rows as windows.
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

// The variants of an implementation that takes rows as windows: two for each of its shapes.
template <size_t kCount>
std::vector<std::string> NamesOfWindows(const RowShape (&shapes)[kCount]) {
  std::vector<std::string> names;
  for (const RowShape& shape : shapes) {
    const std::string size = absl::StrCat(shape.threads, " threads x ", shape.elements);
    names.push_back(size + " windows");
    names.push_back(size + " aligned");
  }
  return names;
}

inline absl::Status CannotTake(int64_t n) {
  return absl::InvalidArgumentError(
      absl::StrCat("rows of ", n, " elements do not fit this variant's threads or vectors"));
}

template <size_t kCount>
absl::Status TakesWindow(const RowShape (&shapes)[kCount], const Problem& problem, int variant) {
  RETURN_IF_ERROR(CheckVariantNumber(variant, 2 * static_cast<int>(kCount)));
  const View view = ViewOf(problem);
  RETURN_IF_ERROR(CheckContiguous(view, "this row"));
  const int width = WidestVector(ElementBytes(problem.inputs[0].data_type));
  const bool aligned = variant % 2 == 1;
  return FitsWindow(view.n, shapes[variant / 2], width, aligned) ? absl::OkStatus()
                                                                 : CannotTake(view.n);
}

// Returns the variant that PlanRow chooses.
inline int ChosenWindow(const Problem& problem) {
  return WindowVariantOf(PlanRow(ViewOf(problem).n, ElementBytes(problem.inputs[0].data_type)));
}

template <typename T>
struct RowLaunch {
  void (*kernel)(RowTensor<T>);
  cuda::Grid grid;
  View view;
};

// Plans a kernel that calls AwaitKernelAhead().
template <typename T>
PlanPtr NewRowPlan(const RowLaunch<T>& row, const PlanContext& context, int variant) {
  const cuda::Grid grid =
      cuda::EarlyGridOf(reinterpret_cast<const void*>(row.kernel), row.grid, *context.device);
  return cuda::NewKernelPlan(
      {.variant = variant, .may_be_replayed = true}, {row.kernel, row.grid}, context,
      [row, grid](const Operands& operands, const LaunchContext& launch) {
        return cuda::Launch(row.kernel, grid, launch, TensorOf<T>(row.view, operands));
      });
}

}  // namespace warpcall::softmax
