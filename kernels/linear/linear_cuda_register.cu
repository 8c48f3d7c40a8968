// matmul's register_tiled in float32 with bias and activation on the sums of a tile.
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "kernels/linear/linear.h"
#include "kernels/linear/linear_cuda_launch.h"
#include "kernels/matmul/matmul_cuda_register.cuh"

namespace warpcall::linear {
namespace {

// With k adjacent in both, operands are copied element by element in any case.
constexpr matmul::TiledVariants kVariants{matmul::kRegisterTiles,
                                          {},
                                          /*element_layouts=*/1,
                                          /*along_k=*/true,
                                          /*turned=*/true};

absl::StatusOr<matmul::Tiling> TilingOf(const Problem& product, const DeviceProperties& device,
                                        int variant) {
  return matmul::MakeTiling(
      {.arrangement = ArrangementAlongK(product), .in_vectors = true, .variant = variant},
      {.variants = kVariants,
       .shared_bytes = matmul::RegisterRingBytes,
       .products_per_cycle = matmul::FloatProductsPerCycle(device),
       .turns = true,
       .shares = true},
      device);
}

template <typename Variant>
__global__ void __launch_bounds__(Variant::kTile.threads(), Variant::kTile.resident)
    RegisterTiled(const __grid_constant__ matmul::Arguments arguments, Finish<float> finish) {
  extern __shared__ __align__(16) float float_ring[];
  matmul::RegisterKernel<float, Variant>::Run(float_ring, arguments, finish);
}

template <int kKernel>
struct VariantOfKernel {
  static constexpr matmul::TiledVariant kAt = kVariants.At(2 * kKernel);
  using Type = matmul::RegisterVariant<float, kAt.tile, kAt.a, kAt.b, kAt.in_vectors>;
};

template <int... kKernels>
TiledKernel<float> KernelFrom(int kernel, std::integer_sequence<int, kKernels...>) {
  static constexpr TiledKernel<float> kTable[] = {
      RegisterTiled<typename VariantOfKernel<kKernels>::Type>...};
  return kTable[kernel];
}

absl::Status Supports(const Problem& problem, const DeviceProperties& device) {
  RETURN_IF_ERROR(matmul::CheckTiledArchitecture("register_tiled", device));
  const Problem product = ProductOf(problem);
  if (!matmul::HasSums(product)) return absl::OkStatus();
  return TilingOf(product, device, kRowsChoice).status();
}

absl::StatusOr<PlanPtr> MakeTiledPlan(const Problem& problem, const PlanContext& context) {
  const Problem product = ProductOf(problem);
  if (!matmul::HasSums(product)) return PlanOfBias(problem, context, kVariants.Count());
  ASSIGN_OR_RETURN(const matmul::Tiling tiling,
                   TilingOf(product, *context.device, context.variant));
  const TiledKernel<float> kernel =
      KernelFrom(tiling.variant / 2, std::make_integer_sequence<int, kVariants.Kernels()>());
  return NewTiledPlan<float>(
      kernel, tiling, FinishOfSums(problem, static_cast<uint32_t>(tiling.choice.splits)), context);
}

std::vector<std::string> Names(DataType) { return matmul::NamesOf(kVariants); }

}  // namespace

Implementation RegisterTiledRow() {
  return {.name = "register_tiled",
          .family = Family::kCuda,
          .device_kind = DeviceKind::kCuda,
          .summary = "matmul's float32 tiles; bias and activation on sums, in the same kernel",
          .data_types = {DataType::kFloat32},
          .supports = Supports,
          .variant_names = Names,
          .plan = MakeTiledPlan};
}

}  // namespace warpcall::linear
