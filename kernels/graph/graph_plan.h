// Runs a graph: plans its steps, and enqueues them one after the other.
#pragma once

#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/plan.h"

namespace warpcall {

// The plan of a graph's problem; every step has its row. An error of a step has the step's number:
// see StepOf. UNIMPLEMENTED if a step's row refuses.
absl::StatusOr<PlanPtr> PlanGraph(const Problem& problem, const PlanContext& context);

// `status`, an error, as that of step number `step`.
absl::Status AtStep(int step, absl::Status status);
// The number of the step whose error it is, counted from 0; none: it is no step's.
std::optional<int> StepOf(const absl::Status& status);

}  // namespace warpcall
