#include "tests/ops/relu/relu.h"

#include "kernels/common/saturate.h"

namespace warpcall {
namespace {

absl::Status InferOutputs(Problem* problem) {
  problem->outputs.push_back(problem->inputs[0]);
  return absl::OkStatus();
}

Work WorkOf(const Problem& problem) {
  const auto bytes = static_cast<int64_t>(problem.inputs[0].bytes());
  return {.bytes = SaturatingMultiply(bytes, 2), .flops = problem.inputs[0].elements()};
}

}  // namespace

const Op& ReluOp() {
  static const Op* const op = new Op{.name = "relu",
                                     .summary = "y = max(x, 0)",
                                     .input_names = {"x"},
                                     .attributes = {},
                                     .infer_outputs = InferOutputs,
                                     .work = WorkOf,
                                     .independence = Independence::kElements,
                                     .definition = &relu::kDefinition,
                                     .cases = relu::Cases};
  return *op;
}

}  // namespace warpcall
