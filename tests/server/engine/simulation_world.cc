#include "tests/server/engine/simulation_world.h"

#include <iterator>

#include "kernels/graph/step_graph.h"
#include "kernels/plan.h"
#include "proto/common/status_macros.h"

namespace warpcall::testing {
namespace {

thread_local Simulation* current = nullptr;

PlanPtr PlanSimulated(int row) {
  return NewPlan({.may_be_replayed = true},
                 [row](const Operands& operands, const LaunchContext& context) {
                   current->Launch(row, operands, context);
                   return absl::OkStatus();
                 });
}

// Some take long by a rate of one FLOP a nanosecond, and most do not.
Work WorkOf(const Problem& problem) {
  constexpr int64_t kFlops[] = {10'000, 10'000,    300'000, 10'000,
                                10'000, 2'000'000, 300'000, 40'000'000};
  Work work;
  for (const TensorSpec& spec : problem.inputs) work.bytes += static_cast<int64_t>(spec.bytes());
  for (const TensorSpec& spec : problem.outputs) work.bytes += static_cast<int64_t>(spec.bytes());
  work.flops = kFlops[problem.outputs[0].bytes() / kMarkStep % std::size(kFlops)];
  return work;
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
                          .work = WorkOf};
    int count = 0;
    const auto row = [&count](const char* name, Family family, DeviceKind kind) {
      Implementation made = {name, family, kind, "", {DataType::kFloat32}, SupportsAll};
      made.plan = [id = count++](const Problem&, const PlanContext&) { return PlanSimulated(id); };
      return made;
    };
    const auto prepared = [&row](const char* name, Family family, DeviceKind kind) {
      Implementation prepares = row(name, family, kind);
      prepares.slow_to_plan = true;
      prepares.plan = [plan = prepares.plan](
                          const Problem& problem,
                          const PlanContext& context) -> absl::StatusOr<PlanPtr> {
        RETURN_IF_ERROR(current->Prepare(problem));
        return plan(problem, context);
      };
      return prepares;
    };
    auto* const created = new Registry;
    created->Add(op, {row("rated", Family::kCpu, DeviceKind::kCpu),
                      prepared("guessed", Family::kCpu, DeviceKind::kCpu),
                      row("rated_cuda", Family::kCuda, DeviceKind::kCuda),
                      prepared("guessed_cuda", Family::kCuda, DeviceKind::kCuda)});
    AddGraphKernel({DeviceKind::kCpu, DeviceKind::kCuda}, created);
    return created;
  }();
  return *registry;
}

}  // namespace warpcall::testing
