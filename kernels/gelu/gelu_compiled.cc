// gelu as an expression, generated and compiled at run time: vectors of 16 bytes, the formula in
// registers.
#include "kernels/compiled/compiler.h"
#include "kernels/expression/cuda_plan.h"
#include "kernels/gelu/gelu.h"
#include "kernels/gelu/gelu_expression.h"

namespace warpcall::gelu {
namespace {

absl::Status Supports(const Problem&, const DeviceProperties& device) {
  return compiled::CheckCompiles(device);
}

absl::StatusOr<PlanPtr> MakeCompiledPlan(const Problem& problem, const PlanContext& context) {
  if (problem.inputs[0].elements() == 0) return PlanNothing();
  return expression::PlanCompiled(TaskOf(problem), context);
}

}  // namespace

Implementation CompiledGeluRow() {
  return {.name = "compiled_gelu",
          .family = Family::kCompiled,
          .device_kind = DeviceKind::kCuda,
          .summary = "one pass by a kernel generated for the problem, compiled at run time",
          .data_types = {DataType::kFloat32, DataType::kFloat16, DataType::kBFloat16},
          .supports = Supports,
          .suits_host_memory = true,
          .slow_to_plan = true,
          .plan = MakeCompiledPlan};
}

}  // namespace warpcall::gelu
