// The implementation onednn_matmul, for ops that add something to its product.
#pragma once

#include "kernels/matmul/matmul_epilogue.h"
#include "kernels/op.h"
#include "kernels/plan.h"

namespace warpcall::matmul {

// OK if oneDNN has a primitive for it on this CPU. `problem` is a matmul of two matrices.
absl::Status CheckOnednn(const Problem& problem, const DeviceProperties& device,
                         const Epilogue& epilogue);

// Plans a matmul that has something to sum. The bias is the third input of the operands. NaN and
// subnormal numbers are left as oneDNN has them: it makes 0 of relu(NaN), NaN of gelu(-infinity)
// and, in bfloat16, of a subnormal x infinity.
absl::StatusOr<PlanPtr> PlanOnednn(const Problem& problem, const PlanContext& context,
                                   const Epilogue& epilogue);

}  // namespace warpcall::matmul
