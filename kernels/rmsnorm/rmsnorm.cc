#include "kernels/rmsnorm/rmsnorm.h"

#include "kernels/check/cases.h"
#include "kernels/norm/norm.h"

namespace warpcall {

const Op& RmsnormOp() {
  static const Op* const op =
      new Op{.name = "rmsnorm",
             .summary = "x / sqrt(mean(x^2) + epsilon) x weight over the last dimension",
             .input_names = {"x", "weight"},
             .attributes = {norm::EpsilonAttribute(1e-6)},
             .infer_outputs = norm::InferOutputs,
             .work = norm::WorkOf,
             .independence = Independence::kRows,
             .input_roles = {OperandRole::kSplit, OperandRole::kShared},
             .is_expressible = IsAlwaysExpressible,
             .definition = &norm::kDefinition,
             .cases = [] { return norm::Cases(false); }};
  return *op;
}

}  // namespace warpcall
