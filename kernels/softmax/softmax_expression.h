// What the row of family `compiled` generates its kernel from.
#pragma once

#include "kernels/expression/cuda_task.h"
#include "kernels/op.h"

namespace warpcall::softmax {

// REQUIRES: the elements of a row lie one behind the other, and there are some.
expression::CudaTask TaskOf(const Problem& problem);

}  // namespace warpcall::softmax
