// Stands in for the needed parts of kernels/cuda/threads.cuh on the CPU.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "tests/kernels/emulated/hopper.h"

// A kernel is compiled as the function that it is, and its shared variables are those of the block
// that runs: one at a time.
#undef __launch_bounds__
#define __launch_bounds__(...)
#undef __shared__
#define __shared__ static

namespace warpcall::cuda {

inline int64_t BlockIndex() { return blockIdx.x + int64_t{blockIdx.y} * gridDim.x; }

}  // namespace warpcall::cuda
