// The row cublaslt for whoever adds something to its product.
#pragma once

#include "kernels/op.h"
#include "kernels/plan.h"

namespace warpcall::matmul {

// OK when cublaslt may take `problem`, a matmul.
absl::Status CheckCublaslt(const Problem& problem);

// A plan of it for a matmul with something to sum, to whose rows a bias is added before they are
// rounded: the third input of the operands, an element for each column.
absl::StatusOr<PlanPtr> PlanCublasltWithBias(const Problem& problem, const PlanContext& context);

}  // namespace warpcall::matmul
