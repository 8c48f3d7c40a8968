// What the row of family `compiled` generates its kernel from.
#pragma once

#include "kernels/expression/cuda_task.h"
#include "kernels/op.h"

namespace warpcall::norm {

// What epsilon may be: from and to which 1 / sqrt(mean square + epsilon) has float32's range.
inline constexpr double kEpsilonMin = 1e-60;
inline constexpr double kEpsilonMax = 1e60;

// REQUIRES: epsilon is in that range.
expression::CudaTask TaskOf(const Problem& problem);

}  // namespace warpcall::norm
