#include <utility>

#include "kernels/matmul/matmul_cuda_wgmma.cuh"
#include "kernels/matmul/matmul_cuda_wgmma_kernels.h"

namespace warpcall::matmul {
namespace {

template <int... kVariants>
WgmmaKernelPointer KernelFrom(int variant, std::integer_sequence<int, kVariants...>) {
  static constexpr WgmmaKernelPointer kTable[] = {
      WgmmaTiled<BFloat16, WgmmaVariantAt<kVariants>>...};
  return kTable[variant];
}

}  // namespace

WgmmaKernelPointer WgmmaBFloat16Kernel(int variant) {
  return KernelFrom(variant, std::make_integer_sequence<int, kWgmmaTileCount * 4>());
}

}  // namespace warpcall::matmul
