// The task from which the implementation of family `compiled` generates its kernel.
#pragma once

#include "kernels/expression/cuda_task.h"
#include "kernels/op.h"

namespace warpcall::softmax {

// REQUIRES: the tensor has elements, and those of a row are adjacent.
expression::CudaTask TaskOf(const Problem& problem);

}  // namespace warpcall::softmax
