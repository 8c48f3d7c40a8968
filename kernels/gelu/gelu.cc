#include "kernels/gelu/gelu.h"

#include <string>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/common/saturate.h"
#include "kernels/plan.h"
#include "proto/common/status_macros.h"

namespace warpcall {
namespace {

absl::Status InferOutputs(Problem* problem) {
  problem->outputs.push_back(problem->inputs[0]);
  return absl::OkStatus();
}

Work WorkOf(const Problem& problem) {
  const TensorSpec& x = problem.inputs[0];
  // Elementary operations of the definition, tanh and erf counted as one: see chain_of_loops, which
  // runs them one by one.
  const int64_t flops_per_element = gelu::UsesTanh(problem) ? 9 : 5;
  return {.bytes = SaturatingMultiply(static_cast<int64_t>(x.bytes()), 2),
          .flops = SaturatingMultiply(x.elements(), flops_per_element)};
}

constexpr const char* kForms[] = {"none", "tanh"};

}  // namespace

const Op& GeluOp() {
  static const Op* const op = new Op{
      .name = "gelu",
      .summary = "Gaussian error linear unit, element by element",
      .input_names = {"x"},
      .attributes = {{.name = "approximate",
                      .summary =
                          "tanh: 0.5x(1 + tanh(sqrt(2/pi)(x + 0.044715x^3))); none: 0.5x(1 + "
                          "erf(x/sqrt(2)))",
                      .default_value = std::string("tanh"),
                      .allowed_values = {"tanh", "none"}}},
      .infer_outputs = InferOutputs,
      .work = WorkOf,
      .independence = Independence::kElements,
      .is_expressible = IsAlwaysExpressible,
      .definition = &gelu::kDefinition,
      .cases = gelu::Cases};
  return *op;
}

std::vector<std::string> gelu::FormNames(DataType) {
  return {std::begin(kForms), std::end(kForms)};
}

absl::StatusOr<int> gelu::FormToPlan(const Problem& problem, const PlanContext& context) {
  const int form = UsesTanh(problem) ? 1 : 0;
  const int wanted = context.variant;
  if (wanted == kRowsChoice || wanted == form) return form;
  RETURN_IF_ERROR(CheckVariantNumber(wanted, std::size(kForms)));
  return absl::InvalidArgumentError(
      absl::StrCat("variant \"", kForms[wanted], "\" cannot take approximate=", kForms[form]));
}

bool gelu::UsesTanh(const Problem& problem) {
  return std::get<std::string>(problem.attributes[kApproximate]) == "tanh";
}

}  // namespace warpcall
