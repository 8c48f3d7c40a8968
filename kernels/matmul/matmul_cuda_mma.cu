// The row mma_tiled: 16-bit types on the tensor cores. matmul_cuda_mma.cuh has the kernel.
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/matmul/matmul.h"
#include "kernels/matmul/matmul_cuda_launch.h"
#include "kernels/matmul/matmul_cuda_mma.cuh"
#include "kernels/variants.h"

namespace warpcall::matmul {
namespace {

// The first architecture with mma.sync for bfloat16 and with cp.async.
constexpr int32_t kArchitectureMin = 80;
constexpr int32_t kArchitectureHopper = 90;

size_t SharedBytes(const Tile& tile) {
  return static_cast<size_t>(tile.m + tile.n) * tile.depth * sizeof(uint16_t) * tile.stages;
}

// The peak rate is 2048 products a cycle on Hopper (989 TFLOP/s over 132 multiprocessors and
// 1.83 GHz), half of that on A100 (312, 108, 1.41).
absl::StatusOr<Plan> PlanOf(const Problem& problem, const DeviceProperties& device, int variant) {
  const Arrangement arrangement = ArrangementOf(problem);
  return MakePlan({.arrangement = arrangement,
                   .in_vectors = arrangement.a_in_vectors && arrangement.b_in_vectors,
                   .variant = variant},
                  {.variants = kMmaVariants,
                   .shared_bytes = SharedBytes,
                   .products_per_cycle = device.architecture >= kArchitectureHopper ? 2048 : 1024},
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
TiledKernel KernelOf(const Plan& plan) {
  return KernelFrom<T>(plan.variant / 2, std::make_integer_sequence<int, kMmaVariants.Kernels()>());
}

absl::Status Supports(const Problem& problem, const DeviceProperties& device) {
  if (device.architecture < kArchitectureMin)
    return absl::UnimplementedError(absl::StrCat("mma_tiled needs compute capability 8.0, ",
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
  if (problem.outputs[0].data_type == DataType::kFloat16)
    return LaunchPlan<Float16>(KernelOf<Float16>(plan), plan, operands, context);
  return LaunchPlan<BFloat16>(KernelOf<BFloat16>(plan), plan, operands, context);
}

absl::StatusOr<LaunchShape> LaunchShapeOf(const Problem& problem, const DeviceProperties& device) {
  if (!HasSums(problem)) return LaunchShape{};
  ASSIGN_OR_RETURN(const Plan plan, PlanOf(problem, device, kRowsChoice));
  const TiledKernel kernel = problem.outputs[0].data_type == DataType::kFloat16
                                 ? KernelOf<Float16>(plan)
                                 : KernelOf<BFloat16>(plan);
  return cuda::ShapeOf(kernel, GridOf(plan), device, plan.choice.splits > 1 ? 2 : 1);
}

std::vector<std::string> Names(DataType) { return NamesOf(kMmaVariants); }

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

Implementation MmaTiledRow() {
  return {.name = "mma_tiled",
          .family = Family::kCuda,
          .device_kind = DeviceKind::kCuda,
          .summary = "tensor cores by mma.sync, tiles in a ring of asynchronous copies",
          .data_types = {DataType::kFloat16, DataType::kBFloat16},
          .supports = Supports,
          .workspace_bytes = WorkspaceBytes,
          .launch = Launch,
          .shape = LaunchShapeOf,
          .variants = &kVariants};
}

}  // namespace warpcall::matmul
