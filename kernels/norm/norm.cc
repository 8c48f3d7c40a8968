#include "kernels/norm/norm.h"

#include <cmath>
#include <string>
#include <variant>

#include "absl/strings/str_cat.h"
#include "kernels/common/saturate.h"
#include "proto/common/check.h"
#include "proto/common/status_macros.h"

namespace warpcall::norm {
namespace {

// Checks weight or bias: x's data type, and one element for each element of a row of x.
absl::Status CheckVector(const Problem& problem, int input, const char* name) {
  const TensorSpec& x = problem.inputs[kX];
  const TensorSpec expected{x.data_type, {x.dims.back()}};
  const TensorSpec& given = problem.inputs[static_cast<size_t>(input)];
  if (given == expected) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("input ", input, " (", name, ") is ",
                                                 ToString(given), "; for x ", ToString(x),
                                                 " it must be ", ToString(expected)));
}

}  // namespace

View ViewOf(const Problem& problem) {
  WARPCALL_DCHECK(problem.inputs.size() > kWeight, problem.inputs.size());
  const Dims& dims = problem.inputs[kX].dims;
  View view{.rows = 1,
            .n = dims.back(),
            .epsilon = std::get<double>(problem.attributes[kEpsilon]),
            .centered = problem.inputs.size() > kBias};
  for (size_t i = 0; i + 1 < dims.size(); ++i) view.rows *= dims[i];
  return view;
}

absl::Status InferOutputs(Problem* problem) {
  RETURN_IF_ERROR(CheckVector(*problem, kWeight, "weight"));
  if (problem->inputs.size() > kBias) RETURN_IF_ERROR(CheckVector(*problem, kBias, "bias"));
  const double epsilon = std::get<double>(problem->attributes[kEpsilon]);
  if (!(epsilon >= 0) || std::isinf(epsilon))
    return absl::InvalidArgumentError(
        absl::StrCat("attribute epsilon is ", epsilon, "; it must be finite and 0 or more"));
  problem->outputs.push_back(problem->inputs[kX]);
  return absl::OkStatus();
}

Work WorkOf(const Problem& problem) {
  int64_t bytes = static_cast<int64_t>(problem.outputs[0].bytes());
  for (const TensorSpec& input : problem.inputs)
    bytes = SaturatingAdd(bytes, static_cast<int64_t>(input.bytes()));
  // Per element: square, add, divide, weigh; and around a mean add, subtract, shift.
  const int64_t each = problem.inputs.size() > kBias ? 7 : 4;
  return {.bytes = bytes, .flops = SaturatingMultiply(problem.inputs[kX].elements(), each)};
}

AttributeSpec EpsilonAttribute(double default_value) {
  return {.name = "epsilon",
          .summary = "added to the mean of squares; finite, 0 or more",
          .default_value = default_value,
          .allowed_values = {}};
}

}  // namespace warpcall::norm
