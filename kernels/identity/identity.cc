#include "kernels/identity/identity.h"

#include "kernels/common/saturate.h"

namespace warpcall {
namespace {

absl::Status InferOutputs(Problem* problem) {
  problem->outputs.push_back(problem->inputs[0]);
  return absl::OkStatus();
}

Work WorkOf(const Problem& problem) {
  const int64_t bytes = static_cast<int64_t>(problem.inputs[0].bytes());
  return {.bytes = SaturatingMultiply(bytes, 2), .flops = 0};
}

}  // namespace

const Op& IdentityOp() {
  static const Op* const op = new Op{.name = "identity",
                                     .summary = "y = x",
                                     .input_names = {"x"},
                                     .attributes = {},
                                     .infer_outputs = InferOutputs,
                                     .work = WorkOf,
                                     .independence = Independence::kElements,
                                     .is_expressible = IsAlwaysExpressible,
                                     .definition = &identity::kDefinition,
                                     .cases = identity::Cases};
  return *op;
}

}  // namespace warpcall
