#include "kernels/layernorm/layernorm.h"

#include "kernels/check/cases.h"
#include "kernels/norm/norm.h"

namespace warpcall {

const Op& LayernormOp() {
  static const Op* const op = new Op{
      .name = "layernorm",
      .summary = "(x - mean) / sqrt(variance + epsilon) x weight + bias over the last dimension",
      .input_names = {"x", "weight", "bias"},
      .attributes = {norm::EpsilonAttribute(1e-5)},
      .infer_outputs = norm::InferOutputs,
      .work = norm::WorkOf,
      .independence = Independence::kRows,
      .input_roles = {OperandRole::kSplit, OperandRole::kShared, OperandRole::kShared},
      .is_expressible = IsAlwaysExpressible,
      .definition = &norm::kDefinition,
      .cases = [] { return norm::Cases(true); }};
  return *op;
}

}  // namespace warpcall
