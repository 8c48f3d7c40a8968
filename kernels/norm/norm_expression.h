// The task from which the implementation of family `compiled` generates its kernel.
#pragma once

#include "kernels/expression/cuda_task.h"
#include "kernels/op.h"

namespace warpcall::norm {

// Range of epsilon within which 1 / sqrt(mean square + epsilon) has float32's range.
inline constexpr double kEpsilonMin = 1e-60;
inline constexpr double kEpsilonMax = 1e60;

// REQUIRES: kEpsilonMin <= epsilon <= kEpsilonMax.
expression::CudaTask TaskOf(const Problem& problem);

}  // namespace warpcall::norm
