// The row mma_tiled: 16-bit types on the tensor cores. matmul_cuda_mma.cuh has the kernel.
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "kernels/matmul/matmul.h"
#include "kernels/matmul/matmul_cuda_launch.h"
#include "kernels/matmul/matmul_cuda_mma.cuh"

namespace warpcall::matmul {
namespace {

// Of the first GPUs with mma.sync for bfloat16 and with cp.async.
constexpr int32_t kArchitectureMin = 80;
constexpr int32_t kArchitectureHopper = 90;

size_t SharedBytes(const Tile& tile) {
  return static_cast<size_t>(tile.m + tile.n) * tile.depth * sizeof(uint16_t) * tile.stages;
}

bool ByChunks(const Arrangement& arrangement) {
  return arrangement.a_in_vectors && arrangement.b_in_vectors;
}

// The peak rate is 2048 products a cycle on Hopper (989 TFLOP/s over 132 multiprocessors and
// 1.83 GHz), half of that on A100 (312, 108, 1.41).
absl::StatusOr<Plan> PlanOf(const Problem& problem, const DeviceProperties& device) {
  const Arrangement arrangement = ArrangementOf(problem);
  TileSet set{.tiles = kMmaElementTiles,
              .shared_bytes = SharedBytes,
              .products_per_cycle = device.architecture >= kArchitectureHopper ? 2048 : 1024};
  if (ByChunks(arrangement)) set.tiles = kMmaTiles;
  return MakePlan(arrangement, set, device);
}

template <typename T, bool kByChunks>
TiledKernel KernelFrom(const Plan& plan) {
  constexpr int kCount =
      static_cast<int>(kByChunks ? std::size(kMmaTiles) : std::size(kMmaElementTiles));
  return WithTile<kCount>(plan.choice.tile, [&](auto tile) {
    return WithAdjacent(plan.arrangement.a, [&](auto a) {
      return WithAdjacent(plan.arrangement.b, [&](auto b) -> TiledKernel {
        using Variant =
            MmaVariant<decltype(tile)::value, decltype(a)::value, decltype(b)::value, kByChunks>;
        return MmaTiled<T, Variant>;
      });
    });
  });
}

TiledKernel KernelOf(DataType type, const Plan& plan) {
  const bool by_chunks = ByChunks(plan.arrangement);
  if (type == DataType::kFloat16)
    return by_chunks ? KernelFrom<Float16, true>(plan) : KernelFrom<Float16, false>(plan);
  return by_chunks ? KernelFrom<BFloat16, true>(plan) : KernelFrom<BFloat16, false>(plan);
}

absl::Status Supports(const Problem& problem, const DeviceProperties& device) {
  if (device.architecture < kArchitectureMin)
    return absl::UnimplementedError(absl::StrCat("mma_tiled needs compute capability 8.0, ",
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
  const DataType type = problem.outputs[0].data_type;
  const TiledKernel kernel = KernelOf(type, plan);
  if (type == DataType::kFloat16) return LaunchPlan<Float16>(kernel, plan, operands, context);
  return LaunchPlan<BFloat16>(kernel, plan, operands, context);
}

absl::StatusOr<LaunchShape> LaunchShapeOf(const Problem& problem, const DeviceProperties& device) {
  if (!HasSums(problem)) return LaunchShape{};
  ASSIGN_OR_RETURN(const Plan plan, PlanOf(problem, device));
  return cuda::ShapeOf(KernelOf(problem.outputs[0].data_type, plan), GridOf(plan), device,
                       plan.choice.splits > 1 ? 2 : 1);
}

}  // namespace

Implementation MmaTiledRow() {
  return {.name = "mma_tiled",
          .family = Family::kCuda,
          .device_kind = DeviceKind::kCuda,
          .summary = "tensor cores by mma.sync, tiles in a ring of asynchronous copies",
          .data_types = {DataType::kFloat16, DataType::kBFloat16},
          .supports = Supports,
          .workspace_bytes = WorkspaceBytes,
          .launch = Launch,
          .shape = LaunchShapeOf};
}

}  // namespace warpcall::matmul
