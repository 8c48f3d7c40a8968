#include "kernels/softmax/softmax.h"

#include <variant>

#include "absl/strings/str_cat.h"
#include "kernels/common/saturate.h"
#include "proto/common/check.h"

namespace warpcall {
namespace {

absl::Status InferOutputs(Problem* problem) {
  const TensorSpec& x = problem->inputs[0];
  const int64_t rank = static_cast<int64_t>(x.dims.size());
  const int64_t axis = std::get<int64_t>(problem->attributes[softmax::kAxis]);
  if (axis < -rank || axis >= rank) {
    return absl::InvalidArgumentError(absl::StrCat("attribute axis is ", axis, "; for rank ", rank,
                                                   " it must be ", -rank, " to ", rank - 1));
  }
  problem->outputs.push_back(x);
  return absl::OkStatus();
}

size_t AxisOf(const Problem& problem) {
  const int64_t given = std::get<int64_t>(problem.attributes[softmax::kAxis]);
  const size_t rank = problem.inputs[0].dims.size();
  const size_t axis = static_cast<size_t>(given < 0 ? given + static_cast<int64_t>(rank) : given);
  WARPCALL_CHECK(axis < rank, given, rank);
  return axis;
}

bool IsAlongRows(const Problem& problem) {
  return AxisOf(problem) + 1 == problem.inputs[0].dims.size();
}

Work WorkOf(const Problem& problem) {
  const TensorSpec& x = problem.inputs[0];
  // Per element: compare, subtract, exp, add, divide.
  return {.bytes = SaturatingMultiply(static_cast<int64_t>(x.bytes()), 2),
          .flops = SaturatingMultiply(x.elements(), 5)};
}

}  // namespace

const Op& SoftmaxOp() {
  static const Op* const op =
      new Op{.name = "softmax",
             .summary = "exp(x - max) / sum along one axis",
             .input_names = {"x"},
             .attributes = {{.name = "axis",
                             .summary = "the axis that sums to 1; negative counts from the last",
                             .default_value = int64_t{-1},
                             .allowed_values = {}}},
             .infer_outputs = InferOutputs,
             .work = WorkOf,
             .independence = Independence::kBeforeAxis,
             .is_expressible = IsAlongRows,
             .definition = &softmax::kDefinition,
             .cases = softmax::Cases};
  return *op;
}

softmax::View softmax::ViewOf(const Problem& problem) {
  const Dims& dims = problem.inputs[0].dims;
  const size_t axis = AxisOf(problem);
  WARPCALL_DCHECK(problem.inputs[0].elements() > 0, ToString(problem.inputs[0]));
  View view{.outer = 1, .n = dims[axis], .inner = 1};
  for (size_t i = 0; i < axis; ++i) view.outer *= dims[i];
  for (size_t i = axis + 1; i < dims.size(); ++i) view.inner *= dims[i];
  return view;
}

}  // namespace warpcall
