// The row onednn_matmul for whoever adds something to its product.
#pragma once

#include "kernels/matmul/matmul_epilogue.h"
#include "kernels/op.h"
#include "kernels/plan.h"

namespace warpcall::matmul {

// OK when oneDNN has what it takes on this CPU. `problem` is a matmul of two matrices.
absl::Status CheckOnednn(const Problem& problem, const DeviceProperties& device,
                         const Epilogue& epilogue);

// A plan of it for a matmul with something to sum. The bias is the third input of the operands. NaN
// and what is subnormal are left as oneDNN has them: it makes 0 of relu(NaN), NaN of
// gelu(-infinity) and, in bfloat16, of a subnormal x infinity.
absl::StatusOr<PlanPtr> PlanOnednn(const Problem& problem, const PlanContext& context,
                                   const Epilogue& epilogue);

}  // namespace warpcall::matmul
