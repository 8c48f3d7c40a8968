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
#include "kernels/variants.h"

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
absl::StatusOr<Plan> PlanOf(const Problem& problem, const DeviceProperties& device, int variant) {
  const DataType type = problem.outputs[0].data_type;
  const Arrangement arrangement = ArrangementOf(problem);
  return MakePlan({.arrangement = arrangement,
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
TiledKernel KernelOf(const Plan& plan) {
  return KernelFrom<T>(plan.variant / 2,
                       std::make_integer_sequence<int, kVariantsOf<T>.Kernels()>());
}

absl::Status Supports(const Problem& problem, const DeviceProperties& device) {
  if (device.architecture < kArchitectureMin)
    return absl::UnimplementedError(absl::StrCat("register_tiled needs compute capability 8.0, ",
                                                 device.name, " has ", device.compute_capability));
  if (!HasSums(problem)) return absl::OkStatus();
  return PlanOf(problem, device, kRowsChoice).status();
}

size_t VariantWorkspaceBytes(const Problem& problem, const DeviceProperties& device, int variant) {
  return HasSums(problem) ? PartialBytes(PlanOf(problem, device, variant)) : 0;
}

size_t WorkspaceBytes(const Problem& problem, const DeviceProperties& device) {
  return VariantWorkspaceBytes(problem, device, kRowsChoice);
}

absl::Status Launch(const Problem& problem, const Operands& operands,
                    const LaunchContext& context) {
  if (problem.outputs[0].elements() == 0) return absl::OkStatus();
  if (!HasSums(problem)) return FillWithZeros(problem, operands, context);
  ASSIGN_OR_RETURN(const Plan plan, PlanOf(problem, *context.device, context.variant));
  return DispatchDataType(problem.outputs[0].data_type, [&](auto type) {
    using T = decltype(type);
    return LaunchPlan<T>(KernelOf<T>(plan), plan, operands, context);
  });
}

absl::StatusOr<LaunchShape> LaunchShapeOf(const Problem& problem, const DeviceProperties& device) {
  if (!HasSums(problem)) return LaunchShape{};
  ASSIGN_OR_RETURN(const Plan plan, PlanOf(problem, device, kRowsChoice));
  const TiledKernel kernel = DispatchDataType(
      problem.outputs[0].data_type, [&](auto type) { return KernelOf<decltype(type)>(plan); });
  return cuda::ShapeOf(kernel, GridOf(plan), device, plan.choice.splits > 1 ? 2 : 1);
}

std::vector<std::string> Names(DataType type) { return NamesOf(VariantsFor(type)); }

// REQUIRES: as Variants::chosen has it, so that there is a plan.
int Chosen(const Problem& problem, const DeviceProperties& device) {
  return PlanOf(problem, device, kRowsChoice)->variant;
}

absl::Status Takes(const Problem& problem, const DeviceProperties& device, int variant) {
  return PlanOf(problem, device, variant).status();
}

constexpr Variants kVariants = {
    .names = Names, .chosen = Chosen, .takes = Takes, .workspace_bytes = VariantWorkspaceBytes};

}  // namespace

Implementation RegisterTiledRow() {
  return {.name = "register_tiled",
          .family = Family::kCuda,
          .device_kind = DeviceKind::kCuda,
          .summary = "float32 multiply-adds, outputs in registers, no tensor cores",
          .data_types = {std::begin(kDataTypes), std::end(kDataTypes)},
          .supports = Supports,
          .workspace_bytes = WorkspaceBytes,
          .launch = Launch,
          .shape = LaunchShapeOf,
          .variants = &kVariants};
}

}  // namespace warpcall::matmul
