// The launch of the rows that are an op's definition: evaluated in float64, rounded once.
#pragma once

#include "absl/status/status.h"
#include "kernels/op.h"

namespace warpcall::cpu {

// Writes output 0, all threads of the context's pool. REQUIRES: op.definition is not null.
absl::Status LaunchDefinition(const Op& op, const Problem& problem, const Operands& operands,
                              const LaunchContext& context);

}  // namespace warpcall::cpu
