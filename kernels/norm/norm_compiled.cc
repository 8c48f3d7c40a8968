// layernorm and rmsnorm as expressions, generated and compiled at run time: rows in registers, and
// those that are too long for that read once for each of their sums and to be written.
#include "absl/strings/str_cat.h"
#include "kernels/compiled/compiler.h"
#include "kernels/expression/cuda_plan.h"
#include "kernels/norm/norm.h"
#include "kernels/norm/norm_expression.h"
#include "proto/common/status_macros.h"

namespace warpcall::norm {
namespace {

absl::Status Supports(const Problem& problem, const DeviceProperties& device) {
  RETURN_IF_ERROR(compiled::CheckCompiles(device));
  const double epsilon = std::get<double>(problem.attributes[kEpsilon]);
  if (epsilon >= kEpsilonMin && epsilon <= kEpsilonMax) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat("compiled_norm takes an epsilon from ", kEpsilonMin,
                                               " to ", kEpsilonMax, "; here it is ", epsilon));
}

absl::StatusOr<PlanPtr> MakeCompiledPlan(const Problem& problem, const PlanContext& context) {
  if (problem.inputs[kX].elements() == 0) return PlanNothing();
  return expression::PlanCompiled(TaskOf(problem), context);
}

}  // namespace

Implementation CompiledNormRow() {
  return {.name = "compiled_norm",
          .family = Family::kCompiled,
          .device_kind = DeviceKind::kCuda,
          .summary = "a kernel generated for the row's length, compiled at run time",
          .data_types = {DataType::kFloat32, DataType::kFloat16, DataType::kBFloat16},
          .supports = Supports,
          .slow_to_plan = true,
          .plan = MakeCompiledPlan};
}

}  // namespace warpcall::norm
