// wgmma_tiled's kernels, compiled in a file for each data type.
#pragma once

#include "kernels/matmul/matmul_cuda_wgmma_arguments.h"
#include "proto/common/half.h"

namespace warpcall::matmul {

using WgmmaKernelPointer = void (*)(WgmmaArguments);

// The kernel of the variant with this number.
WgmmaKernelPointer WgmmaFloat16Kernel(int variant);
WgmmaKernelPointer WgmmaBFloat16Kernel(int variant);

}  // namespace warpcall::matmul
