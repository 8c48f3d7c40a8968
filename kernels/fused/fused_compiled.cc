// The whole expression in one kernel, generated for the problem and compiled at run time.
#include <string>
#include <utility>
#include <variant>

#include "kernels/compiled/compiler.h"
#include "kernels/expression/cuda_plan.h"
#include "kernels/fused/fused.h"

namespace warpcall::fused {
namespace {

absl::Status Supports(const Problem&, const DeviceProperties& device) {
  return compiled::CheckCompiles(device);
}

absl::StatusOr<PlanPtr> MakeCompiledPlan(const Problem& problem, const PlanContext& context) {
  if (problem.outputs[0].elements() == 0) return PlanNothing();
  Program program = ProgramOf(problem);
  return expression::PlanCompiled({.graph = std::move(program.graph),
                                   .inputs = problem.inputs,
                                   .seed = program.seed,
                                   .text = std::get<std::string>(problem.attributes[kExpression])},
                                  context);
}

}  // namespace

Implementation CompiledExpressionRow() {
  return {.name = "compiled_expression",
          .family = Family::kCompiled,
          .device_kind = DeviceKind::kCuda,
          .summary = "the whole expression in one kernel, generated and compiled at run time",
          .data_types = {DataType::kFloat32, DataType::kFloat16, DataType::kBFloat16},
          .supports = Supports,
          .slow_to_plan = true,
          .plan = MakeCompiledPlan};
}

}  // namespace warpcall::fused
