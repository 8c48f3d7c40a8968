// The row mma_tiled: 16-bit types on the tensor cores. matmul_cuda_mma.cuh has the kernel.
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "kernels/matmul/matmul.h"
#include "kernels/matmul/matmul_cuda_launch.h"
#include "kernels/matmul/matmul_cuda_mma.cuh"

namespace warpcall::matmul {
namespace {

absl::StatusOr<Tiling> TilingOf(const Problem& problem, const DeviceProperties& device,
                                int variant) {
  const Arrangement arrangement = ArrangementOf(problem);
  return MakeTiling({.arrangement = arrangement,
                     .in_vectors = arrangement.a_in_vectors && arrangement.b_in_vectors,
                     .variant = variant},
                    {.variants = kMmaVariants,
                     .shared_bytes = MmaRingBytes,
                     .products_per_cycle = TensorProductsPerCycle(device)},
                    device);
}

template <int kKernel>
struct VariantOfKernel {
  static constexpr TiledVariant kAt = kMmaVariants.At(2 * kKernel);
  using Type = MmaVariant<kAt.tile, kAt.a, kAt.b, kAt.in_vectors>;
};

template <typename T, int... kKernels>
TiledKernel KernelFrom(int kernel, std::integer_sequence<int, kKernels...>) {
  static constexpr TiledKernel kTable[] = {
      MmaTiled<T, typename VariantOfKernel<kKernels>::Type>...};
  return kTable[kernel];
}

template <typename T>
TiledKernel KernelOf(const Tiling& tiling) {
  return KernelFrom<T>(tiling.variant / 2,
                       std::make_integer_sequence<int, kMmaVariants.Kernels()>());
}

absl::Status Supports(const Problem& problem, const DeviceProperties& device) {
  RETURN_IF_ERROR(CheckTiledArchitecture("mma_tiled", device));
  if (!HasSums(problem)) return absl::OkStatus();
  return TilingOf(problem, device, kRowsChoice).status();
}

absl::StatusOr<PlanPtr> MakeTiledPlan(const Problem& problem, const PlanContext& context) {
  if (!HasSums(problem)) return PlanOfZeros(problem);
  ASSIGN_OR_RETURN(const Tiling tiling, TilingOf(problem, *context.device, context.variant));
  if (problem.outputs[0].data_type == DataType::kFloat16)
    return NewTiledPlan<Float16>(KernelOf<Float16>(tiling), tiling, context);
  return NewTiledPlan<BFloat16>(KernelOf<BFloat16>(tiling), tiling, context);
}

std::vector<std::string> Names(DataType) { return NamesOf(kMmaVariants); }

}  // namespace

Implementation MmaTiledRow() {
  return {.name = "mma_tiled",
          .family = Family::kCuda,
          .device_kind = DeviceKind::kCuda,
          .summary = "tensor cores by mma.sync, tiles in a ring of asynchronous copies",
          .data_types = {DataType::kFloat16, DataType::kBFloat16},
          .supports = Supports,
          .variant_names = Names,
          .plan = MakeTiledPlan};
}

}  // namespace warpcall::matmul
