#include "kernels/gelu/gelu.h"

#include <string>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/common/saturate.h"
#include "kernels/common/status_macros.h"
#include "kernels/variants.h"

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

std::vector<std::string> FormNames(DataType) { return {std::begin(kForms), std::end(kForms)}; }

int ChosenForm(const Problem& problem, const DeviceProperties&) {
  return gelu::UsesTanh(problem) ? 1 : 0;
}

absl::Status TakesForm(const Problem& problem, const DeviceProperties& device, int variant) {
  RETURN_IF_ERROR(CheckVariantNumber(variant, std::size(kForms)));
  const int form = ChosenForm(problem, device);
  if (variant == form) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("variant \"", kForms[variant], "\" cannot take approximate=", kForms[form]));
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

const Variants gelu::kFormVariants = {
    .names = FormNames, .chosen = ChosenForm, .takes = TakesForm, .workspace_bytes = nullptr};

bool gelu::UsesTanh(const Problem& problem) {
  return std::get<std::string>(problem.attributes[kApproximate]) == "tanh";
}

}  // namespace warpcall
