#include "kernels/plan.h"

#include "kernels/common/status_macros.h"
#include "kernels/variants.h"

namespace warpcall {
namespace {

// Of a row that is still told everything at every launch.
class FunctionsPlan final : public Plan {
 public:
  FunctionsPlan(const Traits& traits, const Implementation& row, Problem problem,
                const LaunchContext& context)
      : Plan(traits), row_(row), problem_(std::move(problem)), context_(context) {}

  absl::Status Enqueue(const Operands& operands, const LaunchContext& context) const override {
    LaunchContext launch = context_;
    launch.stream = context.stream;
    launch.workspace = context.workspace;
    launch.stop = context.stop;
    return row_.launch(problem_, operands, launch);
  }

 private:
  absl::StatusOr<LaunchShape> AskShape() const override {
    if (row_.shape == nullptr) return LaunchShape();
    return row_.shape(problem_, *context_.device);
  }

  const Implementation row_;
  const Problem problem_;
  const LaunchContext context_;
};

}  // namespace

PlanPtr PlanNothing() {
  return NewPlan({}, [](const Operands&, const LaunchContext&) { return absl::OkStatus(); });
}

decltype(Implementation::plan) PlanBy(
    absl::Status (*launch)(const Problem&, const Operands&, const LaunchContext&),
    size_t (*workspace_bytes)(const Problem&, const DeviceProperties&)) {
  return [=](const Problem& problem, const PlanContext& context) -> absl::StatusOr<PlanPtr> {
    if (context.variant != kRowsChoice) RETURN_IF_ERROR(CheckVariantNumber(context.variant, 1));
    const size_t bytes = workspace_bytes == nullptr ? 0 : workspace_bytes(problem, *context.device);
    return NewPlan({.workspace_bytes = bytes},
                   [=](const Operands& operands, const LaunchContext& where) {
                     return launch(problem, operands, where);
                   });
  };
}

absl::StatusOr<PlanPtr> MakePlan(const Implementation& row, const Problem& problem,
                                 const PlanContext& context) {
  if (row.plan != nullptr) return row.plan(problem, context);
  int variant = context.variant;
  if (row.variants != nullptr && variant != kRowsChoice)
    RETURN_IF_ERROR(row.variants->takes(problem, *context.device, variant));
  LaunchContext launch = {
      .device = context.device, .libraries = context.libraries, .variant = context.variant};
  Plan::Traits traits = {
      .workspace_bytes = WorkspaceBytes(row, problem, *context.device, context.variant),
      .variant = context.variant,
      .may_be_replayed =
          row.may_be_replayed && row.workspace_bytes == nullptr && row.prepare == nullptr};
  if (row.prepare != nullptr && context.tryout != nullptr) {
    LaunchContext tried = launch;
    tried.stream = context.tryout->stream;
    ASSIGN_OR_RETURN(tried.workspace, context.tryout->workspace(traits.workspace_bytes));
    RETURN_IF_ERROR(row.prepare(problem, *context.tryout->operands, &tried));
    launch.plan = std::move(tried.plan);
  }
  return std::make_shared<const FunctionsPlan>(traits, row, problem, launch);
}

}  // namespace warpcall
