// The row dot_per_output: a matrix times a vector. matmul_cuda_dot.cuh has the kernels.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/common/dispatch.h"
#include "kernels/matmul/matmul.h"
#include "kernels/matmul/matmul_cuda_dot.cuh"
#include "kernels/matmul/matmul_cuda_launch.h"

namespace warpcall::matmul {
namespace {

// So that a is the matrix and b the vector. A vector's elements are adjacent, whichever it is.
Arrangement WithVectorSecond(Arrangement arrangement) {
  Arguments& arguments = arrangement.arguments;
  if (arguments.n == 1) return arrangement;
  std::swap(arguments.m, arguments.n);
  std::swap(arguments.a_stride, arguments.b_stride);
  std::swap(arguments.batch.a_stride, arguments.batch.b_stride);
  std::swap(arrangement.a, arrangement.b);
  std::swap(arrangement.a_in_vectors, arrangement.b_in_vectors);
  return arrangement;
}

template <typename T>
constexpr int kWidthMax = cuda::kVectorWidth<T>;

// Where the matrix is read by vectors along k, the vector can be too: its batches begin at
// multiples of k, as the matrix's rows do.
template <typename T>
TiledKernel KernelOf(const Arrangement& arrangement) {
  if (arrangement.a == Adjacent::kDepth)
    return arrangement.a_in_vectors ? DotPerOutput<T, Adjacent::kDepth, kWidthMax<T>>
                                    : DotPerOutput<T, Adjacent::kDepth, 1>;
  return arrangement.a_in_vectors ? DotPerOutput<T, Adjacent::kOuter, kWidthMax<T>>
                                  : DotPerOutput<T, Adjacent::kOuter, 1>;
}

int OutputsPerBlock(const Arrangement& arrangement, DataType type) {
  if (arrangement.a == Adjacent::kDepth) return DotWalk<Adjacent::kDepth, 1>::kOutputs;
  if (!arrangement.a_in_vectors) return DotWalk<Adjacent::kOuter, 1>::kOutputs;
  return ElementBytes(type) == sizeof(float)
             ? DotWalk<Adjacent::kOuter, kWidthMax<float>>::kOutputs
             : DotWalk<Adjacent::kOuter, kWidthMax<Float16>>::kOutputs;
}

// REQUIRES: HasSums(problem), and m or n is 1.
Plan PlanOf(const Problem& problem, const DeviceProperties& device) {
  Plan plan = {};
  plan.arrangement = WithVectorSecond(ArrangementOf(problem));
  Arguments& arguments = plan.arrangement.arguments;
  plan.tile.m = OutputsPerBlock(plan.arrangement, problem.outputs[0].data_type);
  plan.tile.n = 1;
  // Splits begin at multiples of a visit of a warp, and so of a vector.
  plan.tile.depth = 32 * kWidthMax<Float16>;
  plan.tile.warps_m = kDotWarps;
  plan.tile.warps_n = 1;
  const Size size = SizeOf(arguments);
  plan.choice =
      Cut(plan.tile, size,
          DotSplits(BlocksOf(plan.tile, size, 1), size.k, std::max(1, device.multiprocessors)));
  plan.blocks = BlocksOf(plan.tile, size, plan.choice.splits);
  arguments.splits = static_cast<uint32_t>(plan.choice.splits);
  arguments.split_depth = plan.choice.split_depth;
  arguments.tiles_m =
      static_cast<uint32_t>(std::min(CeilDivide(size.m, plan.tile.m), cuda::kGridMax));
  arguments.tiles_n = 1;
  return plan;
}

absl::Status Supports(const Problem& problem, const DeviceProperties& device) {
  if (!HasSums(problem)) return absl::OkStatus();
  const Shape shape = DecodeShape(problem);
  if (shape.m != 1 && shape.n != 1)
    return absl::UnimplementedError(
        absl::StrCat("dot_per_output takes m = 1 or n = 1, got m ", shape.m, ", n ", shape.n));
  const int64_t blocks = PlanOf(problem, device).blocks;
  if (blocks > cuda::kGridMax)
    return absl::UnimplementedError(absl::StrCat("the outputs make ", blocks, " blocks; at most ",
                                                 cuda::kGridMax, " are allowed"));
  return absl::OkStatus();
}

size_t WorkspaceBytes(const Problem& problem, const DeviceProperties& device) {
  if (!HasSums(problem)) return 0;
  const Plan plan = PlanOf(problem, device);
  return PartialBytes(SizeOf(plan.arrangement.arguments), plan.choice);
}

absl::Status Launch(const Problem& problem, const Operands& operands,
                    const LaunchContext& context) {
  if (problem.outputs[0].elements() == 0) return absl::OkStatus();
  if (!HasSums(problem)) return FillWithZeros(problem, operands, context);
  const Plan plan = PlanOf(problem, *context.device);
  Operands in_order = operands;
  if (DecodeShape(problem).n != 1) std::swap(in_order.inputs[0], in_order.inputs[1]);
  return DispatchDataType(problem.outputs[0].data_type, [&](auto type) {
    using T = decltype(type);
    return LaunchPlan<T>(KernelOf<T>(plan.arrangement), plan, in_order, context);
  });
}

absl::StatusOr<LaunchShape> LaunchShapeOf(const Problem& problem, const DeviceProperties& device) {
  if (!HasSums(problem)) return LaunchShape{};
  const Plan plan = PlanOf(problem, device);
  const TiledKernel kernel = DispatchDataType(problem.outputs[0].data_type, [&](auto type) {
    return KernelOf<decltype(type)>(plan.arrangement);
  });
  return cuda::ShapeOf(kernel, GridOf(plan), device, plan.choice.splits > 1 ? 2 : 1);
}

}  // namespace

Implementation DotPerOutputRow() {
  return {.name = "dot_per_output",
          .family = Family::kCuda,
          .device_kind = DeviceKind::kCuda,
          .summary = "a matrix times a vector at the speed of reading it",
          .data_types = {std::begin(kDataTypes), std::end(kDataTypes)},
          .supports = Supports,
          .workspace_bytes = WorkspaceBytes,
          .launch = Launch,
          .shape = LaunchShapeOf};
}

}  // namespace warpcall::matmul
