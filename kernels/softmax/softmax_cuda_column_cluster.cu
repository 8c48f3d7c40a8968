// A long axis with a stride: a cluster of up to 16 blocks takes some neighbouring columns and holds
// the whole axis of them in registers, so that memory is read once and written once. Blocks
// exchange (maximum, sum) of each column through distributed shared memory.
#include <string>
#include <vector>

#include "kernels/cuda/cluster.cuh"
#include "kernels/cuda/cluster_launch.h"
#include "kernels/cuda/vector.cuh"
#include "kernels/softmax/softmax_cuda_column_cluster.h"
#include "kernels/softmax/softmax_cuda_launch.h"
#include "kernels/softmax/softmax_cuda_math.cuh"
#include "proto/common/dispatch.h"

namespace warpcall::softmax {
namespace {

template <typename T, int kVariant>
struct ColumnTiling {
  static constexpr int kThreads = kColumnClusterThreads;
  static constexpr int kWidth = WidestVector(sizeof(T));
  static constexpr int kLanes = kColumnClusterLanes[kVariant];
  static constexpr int kColumns = kLanes * kWidth;
  static constexpr int kSlices = kThreads / kLanes;
  static constexpr int kWarps = kThreads / 32;
  // Threads that merge the statistics of one column.
  static constexpr int kMergers = 8;
  static_assert(kColumns * kMergers <= kThreads && kColumns * kMergers % 32 == 0);
  static_assert(kWarps == 2 * kMergers && kClusterBlocksMax == 2 * kMergers);
};

template <typename T>
struct ColumnTensor {
  const T* x;
  T* y;
  ColumnShape shape;
  ColumnClusterPlan plan;
};

template <typename Tiling>
struct ColumnShared {
  cuda::SharedBarrier arrived;
  alignas(8) float2 blocks[kClusterBlocksMax][Tiling::kColumns];  // the cluster's, by rank
  MaxSum warps[Tiling::kWarps][Tiling::kColumns];
  MaxSum columns[Tiling::kColumns];
};

// A thread's vectors: elements slice, slice + kSlices, ... of its block's part of the axis.
template <typename T, typename Tiling>
struct HeldVectors {
  static constexpr int kWidth = Tiling::kWidth;
  using Vector = cuda::Vector<T, kWidth>;

  Vector raw[kColumnClusterVectors];
  int64_t offset;  // the first vector's
  int64_t step;
  int count;  // number of vectors that exist

  __device__ void Load(const ColumnTensor<T>& tensor) {
    const ColumnShape& shape = tensor.shape;
    const int64_t cluster = BlockIndex() / tensor.plan.blocks;
    const int64_t lane =
        cluster % tensor.plan.across * Tiling::kLanes + threadIdx.x % Tiling::kLanes;
    const int slice = static_cast<int>(threadIdx.x) / Tiling::kLanes;
    const int64_t first = cuda::ClusterRank() * tensor.plan.share + slice;
    const int64_t end = min(shape.n, (cuda::ClusterRank() + 1) * tensor.plan.share);
    const bool has_any = lane < shape.lanes && first < end;
    count = has_any ? static_cast<int>((end - first + Tiling::kSlices - 1) / Tiling::kSlices) : 0;
    offset = ((cluster / tensor.plan.across * shape.n + first) * shape.lanes + lane) * kWidth;
    step = int64_t{Tiling::kSlices} * shape.lanes * kWidth;
#pragma unroll
    for (int i = 0; i < kColumnClusterVectors; ++i) {
      if (i < count) {
        raw[i] = Vector::LoadStreaming(tensor.x + offset + i * step);
      } else {
        float nothing[kWidth];
#pragma unroll
        for (int k = 0; k < kWidth; ++k) nothing[k] = -INFINITY;
        raw[i] = Vector::Pack(nothing);
      }
    }
  }

  // Reduces the columns over all threads of the warp that share them.
  __device__ void Reduce(MaxSum (&part)[kWidth]) const {
#pragma unroll
    for (int k = 0; k < kWidth; ++k) part[k] = {kLowest, 0};
    float value[kWidth];
#pragma unroll
    for (int i = 0; i < kColumnClusterVectors; ++i) {
      raw[i].Unpack(value);
#pragma unroll
      for (int k = 0; k < kWidth; ++k) part[k].max = fmaxf(part[k].max, value[k]);
    }
#pragma unroll
    for (int distance = 16; distance >= Tiling::kLanes; distance /= 2) {
#pragma unroll
      for (int k = 0; k < kWidth; ++k)
        part[k].max = fmaxf(part[k].max, __shfl_xor_sync(0xFFFFFFFFu, part[k].max, distance));
    }
#pragma unroll
    for (int i = 0; i < kColumnClusterVectors; ++i) {
      raw[i].Unpack(value);
#pragma unroll
      for (int k = 0; k < kWidth; ++k) part[k].sum += Exp(value[k] - part[k].max);
    }
#pragma unroll
    for (int distance = 16; distance >= Tiling::kLanes; distance /= 2) {
#pragma unroll
      for (int k = 0; k < kWidth; ++k)
        part[k].sum += __shfl_xor_sync(0xFFFFFFFFu, part[k].sum, distance);
    }
  }

  __device__ void Store(T* y, const MaxSum* columns) const {
    float max[kWidth];
    float scale[kWidth];
#pragma unroll
    for (int k = 0; k < kWidth; ++k) {
      max[k] = columns[k].max;
      scale[k] = Reciprocal(columns[k].sum);
    }
#pragma unroll
    for (int i = 0; i < kColumnClusterVectors; ++i) {
      if (i >= count) break;
      float value[kWidth];
      raw[i].Unpack(value);
#pragma unroll
      for (int k = 0; k < kWidth; ++k) value[k] = Exp(value[k] - max[k]) * scale[k];
      Vector::Pack(value).StoreStreaming(y + offset + i * step);
    }
  }
};

// Merges the values of the cluster's warps into (maximum, sum) of every column.
template <typename Tiling>
__device__ void MergeColumns(ColumnShared<Tiling>* shared, int blocks) {
  const int column = static_cast<int>(threadIdx.x) / Tiling::kMergers;
  const int merger = static_cast<int>(threadIdx.x) % Tiling::kMergers;
  if (column < Tiling::kColumns) {
    const MaxSum block = MergeOfLanes<Tiling::kMergers>(
        Merge(shared->warps[merger][column], shared->warps[merger + Tiling::kMergers][column]));
    const float2 pair = make_float2(block.max, block.sum);
    for (int rank = merger; rank < blocks; rank += Tiling::kMergers)
      cuda::SendToRank(&shared->blocks[cuda::ClusterRank()][column], shared->arrived,
                       static_cast<uint32_t>(rank), pair);
    shared->arrived.Wait(0);
    MaxSum part = {kLowest, 0};
    for (int rank = merger; rank < blocks; rank += Tiling::kMergers) {
      const float2 other = shared->blocks[rank][column];
      part = Merge(part, {other.x, other.y});
    }
    const MaxSum total = MergeOfLanes<Tiling::kMergers>(part);
    if (merger == 0) shared->columns[column] = total;
  }
  __syncthreads();
}

template <typename T, typename Tiling>
__global__ void __launch_bounds__(Tiling::kThreads, 2) ClusterPerColumns(ColumnTensor<T> tensor) {
  constexpr int kWidth = Tiling::kWidth;
  __shared__ ColumnShared<Tiling> shared;
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % Tiling::kLanes;
  if (thread == 0) {
    shared.arrived.Create(1);
    cuda::SharedBarrier::PublishCreated();
    shared.arrived.ArriveExpecting(static_cast<uint32_t>(tensor.plan.blocks) * Tiling::kColumns *
                                   sizeof(float2));
  }
  HeldVectors<T, Tiling> held;
  held.Load(tensor);
  cuda::SyncCluster();
  MaxSum part[kWidth];
  held.Reduce(part);
  if (thread % 32 < Tiling::kLanes) {
#pragma unroll
    for (int k = 0; k < kWidth; ++k) shared.warps[thread / 32][lane * kWidth + k] = part[k];
  }
  __syncthreads();
  MergeColumns(&shared, tensor.plan.blocks);
  held.Store(tensor.y, &shared.columns[lane * kWidth]);
}

ColumnShape ShapeOf(const Problem& problem) {
  const View view = ViewOf(problem);
  return {view.outer, view.n, view.inner / WidestVector(ElementBytes(problem.inputs[0].data_type))};
}

absl::Status CheckColumns(const Problem& problem) {
  const View view = ViewOf(problem);
  const int width = WidestVector(ElementBytes(problem.inputs[0].data_type));
  if (view.inner > 1 && view.inner % width == 0) return absl::OkStatus();
  return absl::UnimplementedError(
      absl::StrCat("cluster_per_columns takes an axis whose elements are a multiple of ", width,
                   " apart; here they are ", view.inner, " apart"));
}

// thread_per_column's blocks hold most shorter axes, and all axes of up to 128 elements.
constexpr int64_t kShortestAxis = 513;

absl::Status Supports(const Problem& problem, const DeviceProperties& device) {
  if (device.architecture < cuda::kArchitectureOfClusters)
    return absl::UnimplementedError(
        absl::StrCat("cluster_per_columns needs compute capability 9.0; this device has ",
                     device.compute_capability));
  if (problem.inputs[0].elements() == 0) return absl::OkStatus();
  RETURN_IF_ERROR(CheckColumns(problem));
  const ColumnShape shape = ShapeOf(problem);
  const ColumnClusterPlan plan = PlanColumnCluster(shape);
  if (shape.n < kShortestAxis || plan.blocks == 0)
    return absl::UnimplementedError(absl::StrCat("cluster_per_columns takes an axis of ",
                                                 kShortestAxis, " to ", kColumnClusterAxisMax,
                                                 " elements; here it has ", shape.n));
  const int64_t blocks =
      SaturatingMultiply(SaturatingMultiply(shape.outer, plan.across), plan.blocks);
  if (blocks <= cuda::kGridMax) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat("cluster_per_columns takes columns for up to ",
                                               cuda::kGridMax, " blocks; here they are ", blocks));
}

absl::Status Takes(const Problem& problem, int variant) {
  RETURN_IF_ERROR(CheckVariantNumber(variant, kColumnClusterVariants));
  if (problem.inputs[0].elements() == 0) return absl::OkStatus();
  RETURN_IF_ERROR(CheckColumns(problem));
  const ColumnShape shape = ShapeOf(problem);
  const ColumnClusterPlan plan = PlanColumnClusterAs(variant, shape);
  return plan.blocks > 0 ? absl::OkStatus() : CannotTake(shape.n);
}

std::vector<std::string> Names(DataType) {
  std::vector<std::string> names;
  for (const int lanes : kColumnClusterLanes)
    names.push_back(absl::StrCat("columns of ", lanes * kVectorBytes, " bytes"));
  return names;
}

template <typename T, int kVariant>
absl::StatusOr<PlanPtr> NewColumnPlan(const ColumnShape& shape, const PlanContext& context) {
  using Tiling = ColumnTiling<T, kVariant>;
  auto* const kernel = ClusterPerColumns<T, Tiling>;
  const ColumnClusterPlan plan = PlanColumnClusterAs(kVariant, shape);
  const int64_t blocks = shape.outer * plan.across * plan.blocks;
  const cuda::ClusterGrid grid = {GridOf(blocks, Tiling::kThreads), plan.blocks};
  RETURN_IF_ERROR(cuda::ClustersAtOnce(reinterpret_cast<const void*>(kernel), grid, 1).status());
  return cuda::NewKernelPlan(
      {.variant = kVariant, .may_be_replayed = true}, {kernel, grid.grid}, context,
      [kernel, grid, shape, plan](const Operands& operands, const LaunchContext& launch) {
        const ColumnTensor<T> tensor{static_cast<const T*>(operands.inputs[0]),
                                     static_cast<T*>(operands.outputs[0]), shape, plan};
        return cuda::LaunchClusters(kernel, grid, launch, tensor);
      });
}

absl::StatusOr<PlanPtr> MakeColumnPlan(const Problem& problem, const PlanContext& context) {
  if (problem.inputs[0].elements() == 0) return PlanNothing();
  const ColumnShape shape = ShapeOf(problem);
  const auto takes = [&](int variant) { return Takes(problem, variant); };
  ASSIGN_OR_RETURN(const int variant,
                   VariantToPlan(context, PlanColumnCluster(shape).variant, takes));
  return DispatchDataType(problem.inputs[0].data_type, [&]<typename T>(T) {
    return DispatchIndex<kColumnClusterVariants>(
        variant, [&](auto number) { return NewColumnPlan<T, number.value>(shape, context); });
  });
}

}  // namespace

Implementation ClusterPerColumnsRow() {
  return {.name = "cluster_per_columns",
          .family = Family::kCuda,
          .device_kind = DeviceKind::kCuda,
          .summary = "some columns in the registers of a cluster of up to 16 blocks, read once",
          .data_types = {DataType::kFloat32, DataType::kFloat16, DataType::kBFloat16},
          .supports = Supports,
          .variant_names = Names,
          .plan = MakeColumnPlan};
}

}  // namespace warpcall::softmax
