// matmul's mma_tiled with bias and activation on the sums of a tile, before they are rounded.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "kernels/linear/linear.h"
#include "kernels/linear/linear_cuda_launch.h"
#include "kernels/matmul/matmul_cuda_mma.cuh"

namespace warpcall::linear {
namespace {

using matmul::Tile;

constexpr matmul::TiledVariants kVariants{matmul::kMmaTiles, matmul::kMmaElementTiles,
                                          /*element_layouts=*/1, /*along_k=*/true};

// Bytes of the ring, which holds the tile's float32 outputs at the end.
size_t SharedBytes(const Tile& tile) {
  return std::max(matmul::MmaRingBytes(tile),
                  static_cast<size_t>(tile.m) * static_cast<size_t>(tile.n) * sizeof(float));
}

absl::StatusOr<matmul::Tiling> TilingOf(const Problem& product, const DeviceProperties& device,
                                        int variant) {
  const matmul::Arrangement arrangement = ArrangementAlongK(product);
  return matmul::MakeTiling({.arrangement = arrangement,
                             .in_vectors = arrangement.a_in_vectors && arrangement.b_in_vectors,
                             .variant = variant},
                            {.variants = kVariants,
                             .shared_bytes = SharedBytes,
                             .products_per_cycle = matmul::TensorProductsPerCycle(device)},
                            device);
}

template <typename T, typename Variant>
__global__ void __launch_bounds__(Variant::kTile.threads(), Variant::kTile.resident)
    MmaTiled(const __grid_constant__ matmul::Arguments arguments, Finish<T> finish) {
  extern __shared__ __align__(128) unsigned char ring[];
  matmul::MmaKernel<T, Variant>::Run(matmul::SharedAddress(ring), arguments, finish);
}

template <int kKernel>
struct VariantOfKernel {
  static constexpr matmul::TiledVariant kAt = kVariants.At(2 * kKernel);
  using Type = matmul::MmaVariant<kAt.tile, kAt.a, kAt.b, kAt.in_vectors>;
};

template <typename T, int... kKernels>
TiledKernel<T> KernelFrom(int kernel, std::integer_sequence<int, kKernels...>) {
  static constexpr TiledKernel<T> kTable[] = {
      MmaTiled<T, typename VariantOfKernel<kKernels>::Type>...};
  return kTable[kernel];
}

template <typename T>
TiledKernel<T> KernelOf(const matmul::Tiling& tiling) {
  return KernelFrom<T>(tiling.variant / 2, std::make_integer_sequence<int, kVariants.Kernels()>());
}

absl::Status Supports(const Problem& problem, const DeviceProperties& device) {
  RETURN_IF_ERROR(matmul::CheckTiledArchitecture("mma_tiled", device));
  const Problem product = ProductOf(problem);
  if (!matmul::HasSums(product)) return absl::OkStatus();
  return TilingOf(product, device, kRowsChoice).status();
}

absl::StatusOr<PlanPtr> MakeTiledPlan(const Problem& problem, const PlanContext& context) {
  const Problem product = ProductOf(problem);
  if (!matmul::HasSums(product)) return PlanOfBias(problem, context, kVariants.Count());
  ASSIGN_OR_RETURN(const matmul::Tiling tiling,
                   TilingOf(product, *context.device, context.variant));
  const SumsFinish finish = FinishOfSums(problem, static_cast<uint32_t>(tiling.choice.splits));
  if (problem.outputs[0].data_type == DataType::kFloat16)
    return NewTiledPlan<Float16>(KernelOf<Float16>(tiling), tiling, finish, context);
  return NewTiledPlan<BFloat16>(KernelOf<BFloat16>(tiling), tiling, finish, context);
}

std::vector<std::string> Names(DataType) { return matmul::NamesOf(kVariants); }

}  // namespace

Implementation MmaTiledRow() {
  return {.name = "mma_tiled",
          .family = Family::kCuda,
          .device_kind = DeviceKind::kCuda,
          .summary = "matmul's tensor-core tiles; bias and activation on sums, in the same kernel",
          .data_types = {DataType::kFloat16, DataType::kBFloat16},
          .supports = Supports,
          .variant_names = Names,
          .plan = MakeTiledPlan};
}

}  // namespace warpcall::linear
