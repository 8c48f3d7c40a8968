// The row register_tiled: all types by float32 multiply-adds. matmul_cuda_register.cuh has the
// kernel.
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/common/dispatch.h"
#include "kernels/matmul/matmul.h"
#include "kernels/matmul/matmul_cuda_launch.h"
#include "kernels/matmul/matmul_cuda_register.cuh"

namespace warpcall::matmul {
namespace {

// The first architecture with cp.async.
constexpr int32_t kArchitectureMin = 80;

// What FloatTile lays out: rows of m + 4 and n + 4 floats.
size_t SharedBytes(const Tile& tile) {
  return static_cast<size_t>(tile.m + 4 + tile.n + 4) * tile.depth * sizeof(float) * tile.stages;
}

constexpr const TiledVariants& VariantsFor(DataType type) {
  return type == DataType::kFloat32 ? kRegisterVariants : kRegisterNarrowVariants;
}

// Whether float32's copies that do not transpose may be of 16 bytes.
bool InVectors(const Arrangement& arrangement) {
  return (arrangement.a == Adjacent::kDepth || arrangement.a_in_vectors) &&
         (arrangement.b == Adjacent::kDepth || arrangement.b_in_vectors);
}

// 128 multiply-adds a cycle on architectures 86 and later, half of that on 80.
absl::StatusOr<Tiling> TilingOf(const Problem& problem, const DeviceProperties& device,
                                int variant) {
  const DataType type = problem.outputs[0].data_type;
  const Arrangement arrangement = ArrangementOf(problem);
  return MakeTiling({.arrangement = arrangement,
                     .in_vectors = type != DataType::kFloat32 || InVectors(arrangement),
                     .variant = variant},
                    {.variants = VariantsFor(type),
                     .shared_bytes = SharedBytes,
                     .products_per_cycle = device.architecture > kArchitectureMin ? 128 : 64},
                    device);
}

template <typename T>
constexpr const TiledVariants& kVariantsOf = sizeof(T) == sizeof(float) ? kRegisterVariants
                                                                        : kRegisterNarrowVariants;

template <typename T, int kKernel>
struct VariantOfKernel {
  static constexpr TiledVariant kAt = kVariantsOf<T>.At(2 * kKernel);
  using Type = RegisterVariant<T, kAt.tile, kAt.a, kAt.b, kAt.in_vectors>;
};

template <typename T, int... kKernels>
TiledKernel KernelFrom(int kernel, std::integer_sequence<int, kKernels...>) {
  static constexpr TiledKernel kTable[] = {
      RegisterTiled<T, typename VariantOfKernel<T, kKernels>::Type>...};
  return kTable[kernel];
}

template <typename T>
TiledKernel KernelOf(const Tiling& tiling) {
  return KernelFrom<T>(tiling.variant / 2,
                       std::make_integer_sequence<int, kVariantsOf<T>.Kernels()>());
}

absl::Status Supports(const Problem& problem, const DeviceProperties& device) {
  if (device.architecture < kArchitectureMin)
    return absl::UnimplementedError(absl::StrCat("register_tiled needs compute capability 8.0, ",
                                                 device.name, " has ", device.compute_capability));
  if (!HasSums(problem)) return absl::OkStatus();
  return TilingOf(problem, device, kRowsChoice).status();
}

absl::StatusOr<PlanPtr> MakeTiledPlan(const Problem& problem, const PlanContext& context) {
  if (!HasSums(problem)) return PlanOfZeros(problem);
  ASSIGN_OR_RETURN(const Tiling tiling, TilingOf(problem, *context.device, context.variant));
  return DispatchDataType(problem.outputs[0].data_type, [&]<typename T>(T) {
    return NewTiledPlan<T>(KernelOf<T>(tiling), tiling, context);
  });
}

std::vector<std::string> Names(DataType type) { return NamesOf(VariantsFor(type)); }

}  // namespace

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
