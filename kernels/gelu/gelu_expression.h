// The task from which the implementation of family `compiled` generates its kernel.
#pragma once

#include "kernels/expression/cuda_task.h"
#include "kernels/op.h"

namespace warpcall::gelu {

expression::CudaTask TaskOf(const Problem& problem);

}  // namespace warpcall::gelu
