#include "kernels/plan.h"

#include "absl/strings/str_cat.h"
#include "proto/common/check.h"
#include "proto/common/status_macros.h"

namespace warpcall {

PlanPtr PlanNothing() {
  return NewPlan({}, [](const Operands&, const LaunchContext&) { return absl::OkStatus(); });
}

decltype(Implementation::plan) PlanBy(LaunchFunction launch,
                                      size_t (*workspace_bytes)(const Problem&,
                                                                const DeviceProperties&)) {
  WARPCALL_DCHECK(launch != nullptr);
  return [=](const Problem& problem, const PlanContext& context) -> absl::StatusOr<PlanPtr> {
    WARPCALL_DCHECK(context.device != nullptr);
    if (context.variant != kRowsChoice) RETURN_IF_ERROR(CheckVariantNumber(context.variant, 1));
    const size_t bytes = workspace_bytes == nullptr ? 0 : workspace_bytes(problem, *context.device);
    return NewPlan({.workspace_bytes = bytes},
                   [=](const Operands& operands, const LaunchContext& where) {
                     WARPCALL_DCHECK(bytes == 0 || where.workspace != nullptr, bytes);
                     return launch(problem, operands, where);
                   });
  };
}

absl::Status CheckVariantNumber(int number, int count) {
  if (number >= 0 && number < count) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("variant ", number, " is unknown; there are ", count));
}

}  // namespace warpcall
