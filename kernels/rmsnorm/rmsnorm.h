// rmsnorm: y = x / sqrt(mean(x^2) + epsilon) x weight over the last dimension, as
// torch.nn.functional.rms_norm. kernels/norm/ has its rows.
//
// A row that holds NaN is NaN throughout. Infinity is NaN, and makes what is finite beside it 0.
#pragma once

#include <vector>

#include "kernels/op.h"

namespace warpcall {

const Op& RmsnormOp();

// The rows of the CPU device, in order of preference.
std::vector<Implementation> RmsnormCpuRows();

// The rows of CUDA devices, in order of preference.
std::vector<Implementation> RmsnormCudaRows();

}  // namespace warpcall
