// The vectorised matmul, for ops that do more with its sums.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "kernels/matmul/matmul_epilogue.h"
#include "kernels/op.h"
#include "kernels/plan.h"

namespace warpcall::matmul {

// Plans `problem`, a matmul with something to sum, for simd_tiled. With an epilogue the operands
// have the bias as a third input.
absl::StatusOr<PlanPtr> PlanSimdTiled(const Problem& problem, const PlanContext& context,
                                      const std::optional<Epilogue>& epilogue);

// Names of the variants that this processor runs.
std::vector<std::string> SimdVariantNames(DataType type);
// OK for the number of a variant, and for kRowsChoice.
absl::Status CheckSimdVariant(DataType type, int variant);

}  // namespace warpcall::matmul
