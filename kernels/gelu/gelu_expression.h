// What the row of family `compiled` generates its kernel from.
#pragma once

#include "kernels/expression/cuda_task.h"
#include "kernels/op.h"

namespace warpcall::gelu {

expression::CudaTask TaskOf(const Problem& problem);

}  // namespace warpcall::gelu
