// softmax as an expression, generated and compiled at run time: rows in registers, and those that
// are too long for that read three times.
#include "absl/strings/str_cat.h"
#include "kernels/compiled/compiler.h"
#include "kernels/expression/cuda_plan.h"
#include "kernels/softmax/softmax.h"
#include "kernels/softmax/softmax_cuda_launch.h"
#include "kernels/softmax/softmax_expression.h"
#include "proto/common/status_macros.h"

namespace warpcall::softmax {
namespace {

constexpr char kName[] = "compiled_softmax";

absl::Status Supports(const Problem& problem, const DeviceProperties& device) {
  RETURN_IF_ERROR(compiled::CheckCompiles(device));
  if (problem.inputs[0].elements() == 0) return absl::OkStatus();
  return CheckContiguous(ViewOf(problem), kName);
}

absl::StatusOr<PlanPtr> MakeCompiledPlan(const Problem& problem, const PlanContext& context) {
  if (problem.inputs[0].elements() == 0) return PlanNothing();
  return expression::PlanCompiled(TaskOf(problem), context);
}

}  // namespace

Implementation CompiledSoftmaxRow() {
  return {.name = kName,
          .family = Family::kCompiled,
          .device_kind = DeviceKind::kCuda,
          .summary = "a kernel generated for the row's length, compiled at run time",
          .data_types = {DataType::kFloat32, DataType::kFloat16, DataType::kBFloat16},
          .supports = Supports,
          .slow_to_plan = true,
          .plan = MakeCompiledPlan};
}

}  // namespace warpcall::softmax
