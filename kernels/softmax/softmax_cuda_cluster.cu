// Rows that no block holds. A cluster of up to 16 blocks holds one, in registers; memory is read
// once and written once. Blocks exchange (maximum, sum) through distributed shared memory. If rows
// are many, parts of the next rows are copied ahead and clusters draw their rows.
#include <algorithm>
#include <string>
#include <vector>

#include "kernels/cuda/cluster_launch.h"
#include "kernels/softmax/softmax_cuda_cluster.cuh"
#include "kernels/softmax/softmax_cuda_cluster.h"
#include "kernels/softmax/softmax_cuda_launch.h"
#include "proto/common/dispatch.h"

namespace warpcall::softmax {
namespace {

static_assert(kClusterBlocksMax == cuda::ClusterExchange::kBlocksMax);

// Shared memory that the largest kernel needs: compute capability 9.0 has 227 KiB, 12.0 99.
constexpr int64_t kSharedBytes = 216 << 10;

template <typename T, int kVariant>
struct VariantTiling {
  static constexpr ClusterShape kShape = ClusterShapeOf(kVariant, sizeof(T));
  static constexpr bool kStreams = kShape.stages > 0;
  using Tiling = ClusterTiling<T, kShape>;
};

// A plan's launch arguments, beside its kernel.
struct ClusterWay {
  cuda::ClusterGrid grid;
  View view;
  ClusterPlan plan;
};

absl::Status Supports(const Problem& problem, const DeviceProperties& device) {
  if (device.architecture < cuda::kArchitectureOfClusters ||
      device.shared_memory_per_block_bytes < kSharedBytes)
    return absl::UnimplementedError(
        absl::StrCat("cluster_per_row needs compute capability 9.0 and ", kSharedBytes,
                     " bytes of shared memory in a block; this device has ",
                     device.compute_capability, " and ", device.shared_memory_per_block_bytes));
  if (problem.inputs[0].elements() == 0) return absl::OkStatus();
  const View view = ViewOf(problem);
  RETURN_IF_ERROR(CheckContiguous(view, "cluster_per_row"));
  const size_t element_bytes = ElementBytes(problem.inputs[0].data_type);
  const int64_t shortest = LengthsOf(RowMethod::kTwoPass).shortest;
  const ClusterPlan plan = PlanCluster(view.rows(), view.n, element_bytes, device.multiprocessors);
  if (view.n < shortest || plan.blocks == 0)
    return absl::UnimplementedError(absl::StrCat(
        "cluster_per_row takes rows of ", shortest, " to ", ClusterLengthMax(element_bytes),
        " elements, in multiples of ", WidestVector(element_bytes), "; here they have ", view.n));
  const int64_t blocks_min = ClusterBlocksMin(device.multiprocessors);
  const int64_t blocks = SaturatingMultiply(view.rows(), plan.blocks);
  if (blocks >= blocks_min) return absl::OkStatus();
  return absl::UnimplementedError(
      absl::StrCat("cluster_per_row takes so many rows that ", blocks_min,
                   " blocks have a part of one; here they are ", blocks, " blocks"));
}

absl::Status Takes(const Problem& problem, int variant) {
  RETURN_IF_ERROR(CheckVariantNumber(variant, kClusterVariants));
  const View view = ViewOf(problem);
  RETURN_IF_ERROR(CheckContiguous(view, "cluster_per_row"));
  const size_t element_bytes = ElementBytes(problem.inputs[0].data_type);
  return PlanClusterAs(variant, view.n, element_bytes).blocks > 0 ? absl::OkStatus()
                                                                  : CannotTake(view.n);
}

std::vector<std::string> Names(DataType type) {
  std::vector<std::string> names;
  for (int variant = 0; variant < kClusterVariants; ++variant) {
    const ClusterShape& shape = ClusterShapeOf(variant, ElementBytes(type));
    names.push_back(absl::StrCat(shape.threads, " threads x ", shape.elements,
                                 shape.stages > 0 ? " streamed" : " a row a cluster"));
  }
  return names;
}

template <typename T, typename Kernel>
PlanPtr NewOneRowPlan(Kernel* kernel, const ClusterWay& way, const PlanContext& context) {
  return cuda::NewKernelPlan(
      {.variant = way.plan.variant, .may_be_replayed = true}, {kernel, way.grid.grid}, context,
      [kernel, way](const Operands& operands, const LaunchContext& launch) {
        return cuda::LaunchClusters(kernel, way.grid, launch, TensorOf<T>(way.view, operands),
                                    way.plan.share);
      });
}

// The number of the next row lies in the workspace, if clusters take more than one.
template <typename T, typename Kernel>
PlanPtr NewStreamingPlan(Kernel* kernel, const ClusterWay& way, const PlanContext& context) {
  using Number = unsigned long long;
  const bool draws = way.view.rows() * way.plan.blocks > int64_t{way.grid.grid.blocks.x};
  return cuda::NewKernelPlan(
      {.workspace_bytes = draws ? sizeof(Number) : 0, .variant = way.plan.variant},
      {kernel, way.grid.grid}, context,
      [kernel, way, draws](const Operands& operands, const LaunchContext& launch) -> absl::Status {
        auto* const next = static_cast<Number*>(launch.workspace);
        if (draws)
          RETURN_IF_ERROR(cuda::ToStatus(
              cudaMemsetAsync(next, 0, sizeof(Number), cuda::StreamOf(launch)), "zeroing"));
        return cuda::LaunchClusters(kernel, way.grid, launch, TensorOf<T>(way.view, operands),
                                    way.plan.share, next);
      });
}

template <typename T, int kVariant>
absl::StatusOr<PlanPtr> NewClusterPlan(ClusterWay way, const PlanContext& context) {
  using Chosen = VariantTiling<T, kVariant>;
  constexpr ClusterShape kShape = Chosen::kShape;
  const int64_t rows = way.view.rows();
  way.grid.cluster_blocks = way.plan.blocks;
  way.grid.grid = GridOf(way.plan.blocks, kShape.threads);
  int64_t clusters = rows;
  if constexpr (Chosen::kStreams) {
    auto* const kernel = ClusterPerRow<T, typename Chosen::Tiling>;
    way.grid.grid.shared_bytes = Chosen::Tiling::Ring::kBytes;
    const int64_t expected =
        int64_t{context.device->multiprocessors} * kShape.resident / way.plan.blocks;
    ASSIGN_OR_RETURN(
        const int64_t at_once,
        cuda::ClustersAtOnce(reinterpret_cast<const void*>(kernel), way.grid, expected));
    clusters = std::min(rows, at_once);
    way.grid.grid.blocks.x = static_cast<unsigned>(clusters * way.plan.blocks);
    return NewStreamingPlan<T>(kernel, way, context);
  } else {
    auto* const kernel = ClusterPerOneRow<T, typename Chosen::Tiling>;
    if (clusters > cuda::kGridMax / way.plan.blocks)
      return absl::UnimplementedError(absl::StrCat("a cluster a row takes up to ",
                                                   cuda::kGridMax / way.plan.blocks,
                                                   " rows; here they are ", rows));
    const auto* const address = reinterpret_cast<const void*>(kernel);
    RETURN_IF_ERROR(cuda::ClustersAtOnce(address, way.grid, 1).status());
    way.grid.grid.blocks.x = static_cast<unsigned>(clusters * way.plan.blocks);
    // In float32 a block fills a multiprocessor, and clusters that begin early find no room for all
    // of their blocks. On an H100 8x262144 takes 12.0 us with an early start and 10.8 without; in
    // 16 bits 6.8 and 7.3.
    way.grid.grid.early = sizeof(T) == 2 && cuda::IsLaunchedEarly(address, *context.device);
    return NewOneRowPlan<T>(kernel, way, context);
  }
}

absl::StatusOr<PlanPtr> MakeClusterPlan(const Problem& problem, const PlanContext& context) {
  if (problem.inputs[0].elements() == 0) return PlanNothing();
  const View view = ViewOf(problem);
  const size_t element_bytes = ElementBytes(problem.inputs[0].data_type);
  const ClusterPlan chosen =
      PlanCluster(view.rows(), view.n, element_bytes, context.device->multiprocessors);
  const auto takes = [&](int variant) { return Takes(problem, variant); };
  ASSIGN_OR_RETURN(const int variant, VariantToPlan(context, chosen.variant, takes));
  const ClusterWay way = {{}, view, PlanClusterAs(variant, view.n, element_bytes)};
  return DispatchDataType(problem.inputs[0].data_type, [&]<typename T>(T) {
    return DispatchIndex<kClusterVariants>(
        variant, [&](auto number) { return NewClusterPlan<T, number.value>(way, context); });
  });
}

}  // namespace

Implementation ClusterPerRowRow() {
  return {.name = "cluster_per_row",
          .family = Family::kCuda,
          .device_kind = DeviceKind::kCuda,
          .summary = "a row in the registers of a cluster of up to 16 blocks, read once",
          .data_types = {DataType::kFloat32, DataType::kFloat16, DataType::kBFloat16},
          .supports = Supports,
          .variant_names = Names,
          .plan = MakeClusterPlan};
}

}  // namespace warpcall::softmax
