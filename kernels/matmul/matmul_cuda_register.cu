// The row register_tiled: all types by float32 multiply-adds. matmul_cuda_register.cuh has the
// kernel.
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "kernels/matmul/matmul.h"
#include "kernels/matmul/matmul_cuda_launch.h"
#include "kernels/matmul/matmul_cuda_register.cuh"
#include "proto/common/dispatch.h"

namespace warpcall::matmul {
namespace {

constexpr const TiledVariants& VariantsFor(DataType type) {
  return type == DataType::kFloat32 ? kRegisterVariants : kRegisterNarrowVariants;
}

// Returns true if float32's copies that do not transpose may be of 16 bytes.
bool InVectors(const Arrangement& arrangement) {
  return (arrangement.a == Adjacent::kDepth || arrangement.a_in_vectors) &&
         (arrangement.b == Adjacent::kDepth || arrangement.b_in_vectors);
}

template <typename T, typename Variant>
__global__ void __launch_bounds__(Variant::kTile.threads(), Variant::kTile.resident)
    RegisterTiled(const __grid_constant__ Arguments arguments) {
  extern __shared__ __align__(16) float float_ring[];
  RegisterKernel<T, Variant>::Run(float_ring, arguments, NoFinish{});
}

template <typename T, int... kKernels>
TiledKernel KernelFrom(int kernel, std::integer_sequence<int, kKernels...>) {
  static constexpr TiledKernel kTable[] = {
      RegisterTiled<T, typename RegisterVariantOfKernel<T, kKernels>::Type>...};
  return kTable[kernel];
}

template <typename T>
TiledKernel KernelOf(const Tiling& tiling) {
  return KernelFrom<T>(tiling.variant / 2,
                       std::make_integer_sequence<int, kRegisterVariantsOf<T>.Kernels()>());
}

absl::Status Supports(const Problem& problem, const DeviceProperties& device) {
  RETURN_IF_ERROR(CheckTiledArchitecture("register_tiled", device));
  if (!HasSums(problem)) return absl::OkStatus();
  return RegisterTilingOf(problem, device, kRowsChoice).status();
}

absl::StatusOr<PlanPtr> MakeTiledPlan(const Problem& problem, const PlanContext& context) {
  if (!HasSums(problem)) return PlanOfZeros(problem);
  ASSIGN_OR_RETURN(const Tiling tiling,
                   RegisterTilingOf(problem, *context.device, context.variant));
  return DispatchDataType(problem.outputs[0].data_type, [&]<typename T>(T) {
    return NewTiledPlan<T>(KernelOf<T>(tiling), tiling, context);
  });
}

std::vector<std::string> Names(DataType type) { return NamesOf(VariantsFor(type)); }

}  // namespace

absl::StatusOr<Tiling> RegisterTilingOf(const Problem& problem, const DeviceProperties& device,
                                        int variant) {
  const DataType type = problem.outputs[0].data_type;
  const Arrangement arrangement = ArrangementOf(problem);
  return MakeTiling({.arrangement = arrangement,
                     .in_vectors = type != DataType::kFloat32 || InVectors(arrangement),
                     .variant = variant},
                    {.variants = VariantsFor(type),
                     .shared_bytes = RegisterRingBytes,
                     .products_per_cycle = FloatProductsPerCycle(device),
                     .turns = type == DataType::kFloat32,
                     .shares = true},
                    device);
}

Implementation RegisterTiledRow() {
  return {.name = "register_tiled",
          .family = Family::kCuda,
          .device_kind = DeviceKind::kCuda,
          .summary = "float32 multiply-adds, outputs in registers, no tensor cores",
          .data_types = {std::begin(kDataTypes), std::end(kDataTypes)},
          .supports = Supports,
          .variant_names = Names,
          .plan = MakeTiledPlan};
}

}  // namespace warpcall::matmul
