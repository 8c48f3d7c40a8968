// layernorm: y = (x - mean) / sqrt(variance + epsilon) x weight + bias over the last dimension, as
// torch.nn.functional.layer_norm: the variance is the mean of squares. kernels/norm/ has its rows.
//
// A row that holds NaN or infinity is NaN throughout.
#pragma once

#include <vector>

#include "kernels/op.h"

namespace warpcall {

const Op& LayernormOp();

// The implementations for the CPU device, in order of preference.
std::vector<Implementation> LayernormCpuRows();

// The implementations for CUDA devices, in order of preference.
std::vector<Implementation> LayernormCudaRows();

namespace layernorm {

// The implementation that only layernorm has.
Implementation OnednnRow();

}  // namespace layernorm

}  // namespace warpcall
