// The implementation cublaslt, for ops that add something to its product.
#pragma once

#include <cstddef>

#include "kernels/op.h"
#include "kernels/plan.h"

namespace warpcall::matmul {

// Bytes that NVIDIA recommends for Hopper (cuBLAS documentation, cublasSetWorkspace).
inline constexpr size_t kCublasltWorkspaceBytes = size_t{32} << 20;

// OK if cublaslt may take `problem`, a matmul.
absl::Status CheckCublaslt(const Problem& problem);

// Plans a matmul that has something to sum. With operands of 16 bits the output may be float32,
// which leaves the sums unrounded.
absl::StatusOr<PlanPtr> PlanCublasltSums(const Problem& problem, const PlanContext& context);

// As PlanCublasltSums, but adds a bias to the rows before they are rounded: the third input of the
// operands, an element for each column.
absl::StatusOr<PlanPtr> PlanCublasltWithBias(const Problem& problem, const PlanContext& context);

}  // namespace warpcall::matmul
