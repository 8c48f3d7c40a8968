// rmsnorm: y = x / sqrt(mean(x^2) + epsilon) x weight over the last dimension, as
// torch.nn.functional.rms_norm. kernels/norm/ has its implementations.
//
// A row that holds NaN is NaN throughout. Infinity gives NaN, and 0 for finite elements beside it.
#pragma once

#include <vector>

#include "kernels/op.h"

namespace warpcall {

const Op& RmsnormOp();

// The implementations for the CPU device, in order of preference.
std::vector<Implementation> RmsnormCpuRows();

// The implementations for CUDA devices, in order of preference.
std::vector<Implementation> RmsnormCudaRows();

}  // namespace warpcall
