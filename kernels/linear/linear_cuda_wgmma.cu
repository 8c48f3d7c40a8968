// matmul's wgmma_tiled with bias and activation on the sums, in registers, before they are rounded.
#include <string>
#include <utility>
#include <vector>

#include "kernels/linear/linear.h"
#include "kernels/linear/linear_cuda_launch.h"
#include "kernels/matmul/matmul_cuda_wgmma.cuh"
#include "kernels/matmul/matmul_cuda_wgmma_plan.h"

namespace warpcall::linear {
namespace {

constexpr matmul::WgmmaVariants kVariants{matmul::WgmmaLayouts::kAlongK};

template <typename T>
using WgmmaKernel = void (*)(matmul::WgmmaArguments, Finish<T>);

template <typename T, typename Variant>
__global__ void __launch_bounds__(Variant::kTile.threads(), 1)
    WgmmaTiled(const __grid_constant__ matmul::WgmmaArguments arguments, Finish<T> finish) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(1024) unsigned char ring[];
  matmul::WgmmaKernel<T, Variant>::Run(matmul::SharedAddress(ring), arguments, finish);
#endif
}

template <typename T, int... kNumbers>
WgmmaKernel<T> KernelFrom(int variant, std::integer_sequence<int, kNumbers...>) {
  static constexpr WgmmaKernel<T> kTable[] = {
      WgmmaTiled<T, matmul::WgmmaVariantAt<kNumbers, kVariants.layouts>>...};
  return kTable[variant];
}

absl::StatusOr<matmul::WgmmaTiling> TilingOf(const Problem& product, const DeviceProperties& device,
                                             int variant) {
  return matmul::MakeWgmmaTiling({.product = product,
                                  .arrangement = ArrangementAlongK(product),
                                  .variants = kVariants,
                                  .variant = variant},
                                 device);
}

absl::Status Supports(const Problem& problem, const DeviceProperties& device) {
  RETURN_IF_ERROR(matmul::CheckWgmmaArchitecture("wgmma_tiled", device));
  const Problem product = ProductOf(problem);
  if (!matmul::HasSums(product)) return absl::OkStatus();
  return TilingOf(product, device, kRowsChoice).status();
}

template <typename T>
PlanPtr NewWgmmaPlan(const Problem& problem, const matmul::WgmmaTiling& chosen,
                     const PlanContext& context) {
  const WgmmaKernel<T> kernel =
      KernelFrom<T>(chosen.variant, std::make_integer_sequence<int, kVariants.Count()>());
  const matmul::WgmmaTiling tiling =
      matmul::LaunchedAs(reinterpret_cast<const void*>(kernel), chosen, *context.device);
  return cuda::NewKernelPlan(
      {.workspace_bytes = tiling.workspace_bytes(),
       .variant = tiling.variant,
       .may_be_replayed = true},
      {kernel, tiling.grid(), tiling.gpu_kernels()}, context,
      [kernel, tiling, activation = ActivationOf(problem)](
          const Operands& operands, const LaunchContext& launch) -> absl::Status {
        ASSIGN_OR_RETURN(const matmul::WgmmaArguments arguments,
                         matmul::PrepareWgmma(tiling, operands, launch));
        const Finish<T> finish = {static_cast<const T*>(operands.inputs[kBias]), activation};
        return matmul::LaunchWgmma(kernel, tiling, launch, arguments, finish);
      });
}

absl::StatusOr<PlanPtr> MakePlan(const Problem& problem, const PlanContext& context) {
  const Problem product = ProductOf(problem);
  if (!matmul::HasSums(product)) return PlanOfBias(problem, context, kVariants.Count());
  ASSIGN_OR_RETURN(const matmul::WgmmaTiling tiling,
                   TilingOf(product, *context.device, context.variant));
  if (problem.outputs[0].data_type == DataType::kFloat16)
    return NewWgmmaPlan<Float16>(problem, tiling, context);
  return NewWgmmaPlan<BFloat16>(problem, tiling, context);
}

std::vector<std::string> Names(DataType) { return matmul::NamesOf(kVariants); }

}  // namespace

Implementation WgmmaTiledRow() {
  return {.name = "wgmma_tiled",
          .family = Family::kCuda,
          .device_kind = DeviceKind::kCuda,
          .summary = "matmul's wgmma tiles; bias and activation on sums, in the same kernel",
          .data_types = {DataType::kFloat16, DataType::kBFloat16},
          .supports = Supports,
          .variant_names = Names,
          .plan = MakePlan};
}

}  // namespace warpcall::linear
