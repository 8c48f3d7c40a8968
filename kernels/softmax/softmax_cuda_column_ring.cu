// A long axis with a stride, and columns enough that clusters of blocks take several panels of them
// each: while a panel is reduced, exchanged and written, the next is copied to shared memory, so
// that memory is read once, written once, and always at work. Clusters that hold a panel in
// registers and end with it leave memory idle for up to half of the time.
#include <algorithm>
#include <string>
#include <vector>

#include "kernels/cuda/cluster_launch.h"
#include "kernels/cuda/tensor_map.h"
#include "kernels/softmax/softmax_cuda_column_ring.cuh"
#include "kernels/softmax/softmax_cuda_column_ring.h"
#include "kernels/softmax/softmax_cuda_launch.h"
#include "proto/common/dispatch.h"

namespace warpcall::softmax {
namespace {

size_t BytesOf(const Problem& problem) { return ElementBytes(problem.inputs[0].data_type); }

ColumnShape ShapeOf(const Problem& problem) {
  const View view = ViewOf(problem);
  return {view.outer, view.n, view.inner / WidestVector(BytesOf(problem))};
}

cuda::MatrixStack StackOf(const Problem& problem) {
  const View view = ViewOf(problem);
  return {problem.inputs[0].data_type, view.inner, view.n, view.outer, view.inner};
}

absl::Status CheckColumns(const Problem& problem) {
  const View view = ViewOf(problem);
  const int width = WidestVector(BytesOf(problem));
  if (view.inner > 1 && view.inner % width == 0) return cuda::CheckMap(StackOf(problem));
  return absl::UnimplementedError(
      absl::StrCat("ring_per_columns takes an axis whose elements are a multiple of ", width,
                   " apart; here they are ", view.inner, " apart"));
}

absl::Status CheckDevice(const DeviceProperties& device) {
  if (device.architecture >= cuda::kArchitectureOfClusters &&
      device.shared_memory_per_block_bytes >= kRingSharedBytes)
    return absl::OkStatus();
  return absl::UnimplementedError(
      absl::StrCat("ring_per_columns needs compute capability 9.0 and ", kRingSharedBytes,
                   " bytes of shared memory in a block; this device has ",
                   device.compute_capability, " and ", device.shared_memory_per_block_bytes));
}

absl::Status Supports(const Problem& problem, const DeviceProperties& device) {
  RETURN_IF_ERROR(CheckDevice(device));
  if (problem.inputs[0].elements() == 0) return absl::OkStatus();
  RETURN_IF_ERROR(CheckColumns(problem));
  const size_t bytes = BytesOf(problem);
  const ColumnShape shape = ShapeOf(problem);
  const ColumnRingPlan plan = PlanColumnRing(bytes, shape, device.multiprocessors);
  if (shape.n < kRingAxisMin || plan.blocks == 0)
    return absl::UnimplementedError(
        absl::StrCat("ring_per_columns takes an axis of ", kRingAxisMin, " to ",
                     RingAxisMax(RingVariants(bytes) - 1, bytes), " elements of ", bytes,
                     " bytes; here it has ", shape.n));
  const int64_t panels_min = RingPanelsMin(plan, device.multiprocessors);
  if (plan.PanelsOf(shape) >= panels_min) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat("ring_per_columns takes columns for ", panels_min,
                                               " panels of ", kRingColumns[plan.variant],
                                               "; here they are ", plan.PanelsOf(shape)));
}

absl::Status Takes(const Problem& problem, int variant) {
  const size_t bytes = BytesOf(problem);
  RETURN_IF_ERROR(CheckVariantNumber(variant, RingVariants(bytes)));
  if (problem.inputs[0].elements() == 0) return absl::OkStatus();
  RETURN_IF_ERROR(CheckColumns(problem));
  const ColumnShape shape = ShapeOf(problem);
  return PlanColumnRingAs(variant, bytes, shape).blocks > 0 ? absl::OkStatus()
                                                            : CannotTake(shape.n);
}

std::vector<std::string> Names(DataType type) {
  std::vector<std::string> names;
  for (int variant = 0; variant < RingVariants(ElementBytes(type)); ++variant)
    names.push_back(absl::StrCat("panels of ", kRingColumns[variant], " columns"));
  return names;
}

// Arguments with which a plan launches its kernel.
struct RingWay {
  ColumnShape shape;
  ColumnRingPlan plan;
  cuda::MatrixStack stack;
  cuda::ClusterGrid grid;
};

template <typename Tiling>
absl::StatusOr<CUtensorMap> MapOf(const RingWay& way, const void* x) {
  const cuda::MapBox box = {.rows = way.plan.chunk_rows,
                            .row_bytes = Tiling::kRowBytes,
                            .swizzled = false,
                            .promotion = CU_TENSOR_MAP_L2_PROMOTION_L2_128B};
  CUtensorMap map;
  RETURN_IF_ERROR(cuda::MakeMap(way.stack, x, box, &map));
  return map;
}

template <typename T, int kVariant>
absl::StatusOr<PlanPtr> NewRingPlan(RingWay way, const PlanContext& context) {
  using Tiling = RingTiling<T, kVariant>;
  auto* const kernel = RingPerColumns<Tiling>;
  way.grid = {GridOf(way.plan.blocks, Tiling::kThreads), way.plan.blocks};
  way.grid.grid.shared_bytes = kRingStages * kRingChunkBytes;
  // A block fills a multiprocessor.
  ASSIGN_OR_RETURN(const int64_t at_once,
                   cuda::ClustersAtOnce(reinterpret_cast<const void*>(kernel), way.grid,
                                        context.device->multiprocessors / way.plan.blocks));
  const int64_t clusters = std::min(at_once, way.plan.PanelsOf(way.shape));
  way.grid.grid.blocks.x = static_cast<unsigned>(clusters * way.plan.blocks);
  return cuda::NewKernelPlan(
      {.variant = kVariant, .may_be_replayed = true}, {kernel, way.grid.grid}, context,
      [kernel, way](const Operands& operands, const LaunchContext& launch) -> absl::Status {
        ASSIGN_OR_RETURN(const CUtensorMap map, MapOf<Tiling>(way, operands.inputs[0]));
        const RingTensor<T> tensor{static_cast<T*>(operands.outputs[0]), way.shape, way.plan};
        return cuda::LaunchClusters(kernel, way.grid, launch, map, tensor);
      });
}

absl::StatusOr<PlanPtr> MakeRingPlan(const Problem& problem, const PlanContext& context) {
  if (problem.inputs[0].elements() == 0) return PlanNothing();
  const ColumnShape shape = ShapeOf(problem);
  const auto takes = [&](int variant) { return Takes(problem, variant); };
  const size_t bytes = BytesOf(problem);
  ASSIGN_OR_RETURN(
      const int variant,
      VariantToPlan(context, PlanColumnRing(bytes, shape, context.device->multiprocessors).variant,
                    takes));
  const RingWay way = {shape, PlanColumnRingAs(variant, bytes, shape), StackOf(problem), {}};
  return DispatchDataType(problem.inputs[0].data_type, [&]<typename T>(T) {
    return DispatchIndex<RingVariants(sizeof(T))>(
        variant, [&](auto number) { return NewRingPlan<T, number.value>(way, context); });
  });
}

}  // namespace

Implementation RingPerColumnsRow() {
  return {.name = "ring_per_columns",
          .family = Family::kCuda,
          .device_kind = DeviceKind::kCuda,
          .summary = "some columns in the shared memory of up to 16 blocks, the next copied ahead",
          .data_types = {DataType::kFloat32, DataType::kFloat16, DataType::kBFloat16},
          .supports = Supports,
          .variant_names = Names,
          .plan = MakeRingPlan};
}

}  // namespace warpcall::softmax
