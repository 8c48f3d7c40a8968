#include "tests/server/engine/simulation_world.h"

#include "kernels/plan.h"
#include "proto/common/status_macros.h"

namespace warpcall::testing {
namespace {

thread_local Simulation* current = nullptr;

absl::StatusOr<PlanPtr> PlanSimulated(const Problem&, const PlanContext&) {
  return NewPlan({}, [](const Operands& operands, const LaunchContext& context) {
    current->Launch(operands, context);
    return absl::OkStatus();
  });
}

absl::StatusOr<PlanPtr> PlanSlowly(const Problem& problem, const PlanContext& context) {
  RETURN_IF_ERROR(current->Prepare());
  return PlanSimulated(problem, context);
}

}  // namespace

void Simulation::LaunchHere() { current = this; }

const Registry& SimulatedRows() {
  static const Registry* const registry = [] {
    static const Op op = {.name = "simulated",
                          .summary = "",
                          .input_names = {"x"},
                          .attributes = {},
                          .infer_outputs = [](Problem*) { return absl::OkStatus(); },
                          .work =
                              [](const Problem&) {
                                return Work{0, 1'000'000};
                              }};
    const auto row = [](const char* name, Family family, DeviceKind kind) {
      Implementation made = {name, family, kind, "", {DataType::kFloat32}, SupportsAll};
      made.plan = PlanSimulated;
      return made;
    };
    const auto prepared = [&row](const char* name, Family family, DeviceKind kind) {
      Implementation prepares = row(name, family, kind);
      prepares.slow_to_plan = true;
      prepares.plan = PlanSlowly;
      return prepares;
    };
    auto* const created = new Registry;
    created->Add(op, {row("rated", Family::kCpu, DeviceKind::kCpu),
                      prepared("guessed", Family::kCpu, DeviceKind::kCpu),
                      row("rated_cuda", Family::kCuda, DeviceKind::kCuda),
                      prepared("guessed_cuda", Family::kCuda, DeviceKind::kCuda)});
    return created;
  }();
  return *registry;
}

}  // namespace warpcall::testing
