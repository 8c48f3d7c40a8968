// The row cublaslt for whoever adds something to its product.
#pragma once

#include <cstddef>

#include "kernels/op.h"
#include "kernels/plan.h"

namespace warpcall::matmul {

// Of its plans: what NVIDIA recommends for Hopper (cuBLAS documentation, cublasSetWorkspace).
inline constexpr size_t kCublasltWorkspaceBytes = size_t{32} << 20;

// OK when cublaslt may take `problem`, a matmul.
absl::Status CheckCublaslt(const Problem& problem);

// A plan of it for a matmul with something to sum. Of operands of 16 bits the output may be
// float32, in which sums are not rounded.
absl::StatusOr<PlanPtr> PlanCublasltSums(const Problem& problem, const PlanContext& context);

// The same for a matmul to whose rows a bias is added before they are rounded: the third input of
// the operands, an element for each column.
absl::StatusOr<PlanPtr> PlanCublasltWithBias(const Problem& problem, const PlanContext& context);

}  // namespace warpcall::matmul
