// Shared on the host by the launchers of layernorm's and rmsnorm's GPU implementations.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "kernels/common/saturate.h"
#include "kernels/cuda/launch.h"
#include "kernels/norm/norm.h"
#include "kernels/norm/norm_cuda_select.h"
#include "proto/common/status_macros.h"

namespace warpcall::norm {

using cuda::DispatchIndex;
using cuda::GridOf;

template <typename T>
RowTensors<T> TensorsOf(const View& view, const Operands& operands) {
  const auto input = [&](int i) {
    return static_cast<const T*>(operands.inputs[static_cast<size_t>(i)]);
  };
  return {.x = input(kX),
          .weight = input(kWeight),
          .bias = view.centered ? input(kBias) : nullptr,
          .y = static_cast<T*>(operands.outputs[0]),
          .rows = view.rows,
          .n = view.n,
          .epsilon = view.epsilon};
}

// UNIMPLEMENTED, with its limits, for rows that are not in [shortest, longest].
inline absl::Status CheckLength(const Problem& problem, absl::string_view row, int64_t shortest,
                                int64_t longest) {
  const int64_t n = problem.inputs[kX].dims.back();
  if (problem.inputs[kX].elements() == 0 || (n >= shortest && n <= longest))
    return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat(row, " takes rows of ", shortest, " to ", longest,
                                               " elements; here they have ", n));
}

// Variant names of an implementation that keeps rows in registers: two for each shape.
template <size_t kCount>
std::vector<std::string> NamesOf(const RowShape (&shapes)[kCount]) {
  std::vector<std::string> names;
  for (const RowShape& shape : shapes) {
    const std::string size = absl::StrCat(shape.threads, " threads x ", shape.elements);
    names.push_back(size + " by element");
    names.push_back(size + " vectors");
  }
  return names;
}

template <size_t kCount>
absl::Status TakesShape(const RowShape (&shapes)[kCount], const Problem& problem, int variant) {
  RETURN_IF_ERROR(CheckVariantNumber(variant, 2 * static_cast<int>(kCount)));
  const TensorSpec& x = problem.inputs[kX];
  const int64_t n = x.dims.back();
  const bool vectors = variant % 2 == 1;
  if (n <= shapes[variant / 2].capacity() &&
      (!vectors || n % WidestVector(ElementBytes(x.data_type)) == 0))
    return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("rows of ", n, " elements do not fit this variant's threads or vectors"));
}

template <size_t kCount>
int ChosenShape(const RowShape (&shapes)[kCount], const Problem& problem) {
  const TensorSpec& x = problem.inputs[kX];
  return NumberOf(FirstShapeFor(shapes, x.dims.back()), x.dims.back(), ElementBytes(x.data_type));
}

struct Way {
  cuda::Grid grid;
  int variant;
};

// A plan that launches `kernel`.
template <typename T>
PlanPtr NewRowPlan(void (*kernel)(RowTensors<T>), const Way& way, const View& view,
                   const PlanContext& context) {
  return cuda::NewKernelPlan(
      {.variant = way.variant, .may_be_replayed = true}, {kernel, way.grid}, context,
      [kernel, grid = way.grid, view](const Operands& operands, const LaunchContext& launch) {
        return cuda::Launch(kernel, grid, launch, TensorsOf<T>(view, operands));
      });
}

// Statistics that a library returned for each row, in device memory.
struct RowStatistics {
  const float* means;        // null where rows are not centred
  const float* reciprocals;  // 1 / sqrt(mean square + epsilon)
};

// Normalises again the float32 rows that are out of range, or whose elements are close together
// beside their mean. Takes some microseconds if there are none.
absl::Status EnqueueRowsOutOfRange(const View& view, const Operands& operands,
                                   const RowStatistics& known, const LaunchContext& context);

}  // namespace warpcall::norm
