// The row register_tiled: all types by float32 multiply-adds. matmul_cuda_register.cuh has the
// kernel.
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "kernels/common/dispatch.h"
#include "kernels/matmul/matmul.h"
#include "kernels/matmul/matmul_cuda_launch.h"
#include "kernels/matmul/matmul_cuda_register.cuh"

namespace warpcall::matmul {
namespace {

// Of the first GPUs with cp.async.
constexpr int32_t kArchitectureMin = 80;

// What FloatTile lays out: rows of m + 4 and n + 4 floats.
size_t SharedBytes(const Tile& tile) {
  return static_cast<size_t>(tile.m + 4 + tile.n + 4) * tile.depth * sizeof(float) * tile.stages;
}

// 128 multiply-adds a cycle on architectures 86 and later, half of that on 80.
absl::StatusOr<Plan> PlanOf(const Problem& problem, const DeviceProperties& device) {
  TileSet set{.tiles = kRegisterTiles,
              .shared_bytes = SharedBytes,
              .products_per_cycle = device.architecture > kArchitectureMin ? 128 : 64};
  if (problem.outputs[0].data_type != DataType::kFloat32) set.tiles = kRegisterNarrowTiles;
  return MakePlan(ArrangementOf(problem), set, device);
}

// Whether the copies of `plan`, where they do not transpose, may be of 16 bytes.
bool InVectors(const Arrangement& arrangement) {
  return (arrangement.a == Adjacent::kDepth || arrangement.a_in_vectors) &&
         (arrangement.b == Adjacent::kDepth || arrangement.b_in_vectors);
}

template <typename T, bool kVectors>
TiledKernel KernelFrom(const Plan& plan) {
  constexpr int kCount = static_cast<int>(
      sizeof(T) == sizeof(float) ? std::size(kRegisterTiles) : std::size(kRegisterNarrowTiles));
  return WithTile<kCount>(plan.choice.tile, [&](auto tile) {
    return WithAdjacent(plan.arrangement.a, [&](auto a) {
      return WithAdjacent(plan.arrangement.b, [&](auto b) -> TiledKernel {
        using Variant = RegisterVariant<T, decltype(tile)::value, decltype(a)::value,
                                        decltype(b)::value, kVectors>;
        return RegisterTiled<T, Variant>;
      });
    });
  });
}

template <typename T>
TiledKernel KernelOf(const Plan& plan) {
  if constexpr (sizeof(T) == sizeof(float)) {
    if (!InVectors(plan.arrangement)) return KernelFrom<T, false>(plan);
  }
  return KernelFrom<T, true>(plan);
}

absl::Status Supports(const Problem& problem, const DeviceProperties& device) {
  if (device.architecture < kArchitectureMin)
    return absl::UnimplementedError(absl::StrCat("register_tiled needs compute capability 8.0, ",
                                                 device.name, " has ", device.compute_capability));
  if (!HasSums(problem)) return absl::OkStatus();
  return PlanOf(problem, device).status();
}

size_t WorkspaceBytes(const Problem& problem, const DeviceProperties& device) {
  return HasSums(problem) ? PartialBytes(PlanOf(problem, device)) : 0;
}

absl::Status Launch(const Problem& problem, const Operands& operands,
                    const LaunchContext& context) {
  if (problem.outputs[0].elements() == 0) return absl::OkStatus();
  if (!HasSums(problem)) return FillWithZeros(problem, operands, context);
  ASSIGN_OR_RETURN(const Plan plan, PlanOf(problem, *context.device));
  return DispatchDataType(problem.outputs[0].data_type, [&](auto type) {
    using T = decltype(type);
    return LaunchPlan<T>(KernelOf<T>(plan), plan, operands, context);
  });
}

absl::StatusOr<LaunchShape> LaunchShapeOf(const Problem& problem, const DeviceProperties& device) {
  if (!HasSums(problem)) return LaunchShape{};
  ASSIGN_OR_RETURN(const Plan plan, PlanOf(problem, device));
  const TiledKernel kernel = DispatchDataType(
      problem.outputs[0].data_type, [&](auto type) { return KernelOf<decltype(type)>(plan); });
  return cuda::ShapeOf(kernel, GridOf(plan), device, plan.choice.splits > 1 ? 2 : 1);
}

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
          .shape = LaunchShapeOf};
}

}  // namespace warpcall::matmul
