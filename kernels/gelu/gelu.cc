#include "kernels/gelu/gelu.h"

#include <string>
#include <variant>

#include "kernels/common/saturate.h"

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
      .definition = &gelu::kDefinition,
      .cases = gelu::Cases};
  return *op;
}

bool gelu::UsesTanh(const Problem& problem) {
  return std::get<std::string>(problem.attributes[kApproximate]) == "tanh";
}

}  // namespace warpcall
