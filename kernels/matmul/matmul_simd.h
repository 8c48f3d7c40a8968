// The vectorised matmul for whoever has more to do with its sums.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "kernels/matmul/matmul_epilogue.h"
#include "kernels/op.h"
#include "kernels/plan.h"

namespace warpcall::matmul {

// A plan of simd_tiled for `problem`, a matmul with something to sum. With an epilogue the operands
// have the bias as a third input.
absl::StatusOr<PlanPtr> PlanSimdTiled(const Problem& problem, const PlanContext& context,
                                      const std::optional<Epilogue>& epilogue);

// Of this processor.
std::vector<std::string> SimdVariantNames(DataType type);
// OK for the number of one, and for kRowsChoice.
absl::Status CheckSimdVariant(DataType type, int variant);

}  // namespace warpcall::matmul
