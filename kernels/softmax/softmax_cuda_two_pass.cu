// Rows that no block holds in registers: read once for the maximum and the sum (the online softmax
// of Milakov and Gimelshein, 2018), and once more to be written.
//
// With many rows a block takes a row and reads it the second time from its end, where the first
// pass stopped: two rows a multiprocessor are in flight, of which the second-level cache still
// holds much. With few rows each is cut into chunks, a block each, in two kernels; the first
// leaves (maximum, sum) of every chunk in the workspace.
#include <algorithm>
#include <string>
#include <vector>

#include "kernels/softmax/softmax_cuda_launch.h"
#include "kernels/softmax/softmax_cuda_math.cuh"
#include "kernels/softmax/softmax_cuda_window.cuh"
#include "proto/common/dispatch.h"

namespace warpcall::softmax {
namespace {

// Two blocks share a multiprocessor, so that one moves data while the other exchanges its sums.
constexpr int kResidentBlocks = 2;

template <typename T, bool kAligned>
using Step = Held<T, WidestVector(sizeof(T)), kTwoPassInFlight / WidestVector(sizeof(T)),
                  kTwoPassThreads, kAligned>;

template <typename T>
constexpr int kStepVectors = TwoPassStepVectors(sizeof(T));
static_assert(kChunkVectorsMax + kStepVectors<float> < INT32_MAX / WidestVector(2));

// Maximum and sum of the thread's elements of the window.
template <bool kAligned, bool kPastL1, typename T>
__device__ MaxSum Reduce(const Window<T>& window) {
  MaxSum part{kLowest, 0};
  for (int v = threadIdx.x; v < window.vectors; v += kStepVectors<T>) {
    Step<T, kAligned> step;
    step.template Load<kPastL1>(window, v);
    const float max = fmaxf(part.max, step.Max());
    part = {max, part.sum * Exp(part.max - max) + step.Exponentiate(max)};
  }
  return part;
}

// Writes from the end: elements that Reduce read last come first.
template <bool kAligned, typename T>
__device__ void Write(const Window<T>& window, MaxSum row) {
  const float scale = Reciprocal(row.sum);
  const int steps = (window.vectors + kStepVectors<T> - 1) / kStepVectors<T>;
  for (int i = steps - 1; i >= 0; --i) {
    const int v = i * kStepVectors<T> + static_cast<int>(threadIdx.x);
    Step<T, kAligned> step;
    step.template Load</*kPastL1=*/true>(window, v);
    step.Exponentiate(row.max);
    step.Store(window, v, scale);
  }
}

template <typename T, bool kAligned>
__global__ void __launch_bounds__(kTwoPassThreads, kResidentBlocks)
    BlockPerLongRow(RowTensor<T> tensor) {
  __shared__ MaxSum shared[kTwoPassThreads / kWarpThreads];
  const int64_t row = BlockIndex();
  if (row >= tensor.rows) return;
  const Window<T> window = WholeRow<WidestVector(sizeof(T)), kAligned>(tensor, row);
  const MaxSum part = Reduce<kAligned, /*kPastL1=*/false>(window);
  Write<kAligned>(window, MergeOfBlock<kTwoPassThreads>(part, shared));
}

// The part of its row that the block of this number takes.
template <bool kAligned, typename T>
__device__ Window<T> WindowOf(const RowTensor<T>& tensor, const ChunkPlan& plan, int64_t block) {
  const int64_t first = block % plan.chunks_per_row * plan.chunk_vectors;
  return PartOfRow<WidestVector(sizeof(T)), kAligned>(tensor, block / plan.chunks_per_row,
                                                      {first, plan.chunk_vectors});
}

template <typename T, bool kAligned>
__global__ void __launch_bounds__(kTwoPassThreads, kResidentBlocks)
    ReduceChunks(RowTensor<T> tensor, ChunkPlan plan, MaxSum* parts) {
  __shared__ MaxSum shared[kTwoPassThreads / kWarpThreads];
  const int64_t block = BlockIndex();
  if (block >= tensor.rows * plan.chunks_per_row) return;
  const Window<T> window = WindowOf<kAligned>(tensor, plan, block);
  const MaxSum part = Reduce<kAligned, /*kPastL1=*/false>(window);
  const MaxSum chunk = MergeOfBlock<kTwoPassThreads>(part, shared);
  if (threadIdx.x == 0) parts[block] = chunk;
}

// Every warp merges the row's parts for itself: they are few, and no barrier is needed.
template <typename T, bool kAligned>
__global__ void __launch_bounds__(kTwoPassThreads, kResidentBlocks)
    WriteChunks(RowTensor<T> tensor, ChunkPlan plan, const MaxSum* parts) {
  const int64_t block = BlockIndex();
  if (block >= tensor.rows * plan.chunks_per_row) return;
  const int64_t row = block / plan.chunks_per_row;
  MaxSum part{kLowest, 0};
  for (int64_t i = threadIdx.x % kWarpThreads; i < plan.chunks_per_row; i += kWarpThreads)
    part = Merge(part, parts[row * plan.chunks_per_row + i]);
  const Window<T> window = WindowOf<kAligned>(tensor, plan, block);
  Write<kAligned>(window, MergeOfLanes<kWarpThreads>(part));
}

struct Cut {
  ChunkPlan chunks;
  TwoPassVariant variant;
  cuda::Grid grid;
};

// Returns chunks of length 0 if `variant` cannot take the problem. Returns the implementation's own
// choice if that is of this variant.
Cut CutFor(const Problem& problem, const DeviceProperties& device, int variant) {
  const View view = ViewOf(problem);
  const size_t element_bytes = ElementBytes(problem.inputs[0].data_type);
  Cut cut = {};
  cut.chunks = PlanChunks(view.rows(), view.n, element_bytes, device.multiprocessors);
  cut.variant = TwoPassVariantOf(cut.chunks, view.n, element_bytes);
  if (variant != kRowsChoice) {
    const TwoPassVariant asked = TwoPassVariantAt(variant);
    const bool is_choice = asked.chunked == cut.variant.chunked &&
                           asked.several_steps == cut.variant.several_steps &&
                           asked.aligned <= cut.variant.aligned;
    if (!is_choice) cut.chunks = ChunksFor(asked, view.n, element_bytes);
    cut.variant = asked;
  }
  const int64_t blocks = SaturatingMultiply(view.rows(), cut.chunks.chunks_per_row);
  cut.grid = GridOf(std::max<int64_t>(1, blocks), kTwoPassThreads);
  return cut;
}

absl::Status Supports(const Problem& problem, const DeviceProperties&) {
  if (problem.inputs[0].elements() == 0) return absl::OkStatus();
  return CheckContiguous(ViewOf(problem), "two_pass");
}

absl::Status Takes(const Problem& problem, const DeviceProperties& device, int variant) {
  RETURN_IF_ERROR(CheckVariantNumber(variant, kTwoPassVariants));
  RETURN_IF_ERROR(Supports(problem, device));
  return CutFor(problem, device, variant).chunks.chunk_vectors > 0 ? absl::OkStatus()
                                                                   : CannotTake(ViewOf(problem).n);
}

size_t WorkspaceBytes(const View& view, const Cut& cut) {
  if (!cut.variant.chunked) return 0;
  return SaturatingBytes(SaturatingMultiply(view.rows(), cut.chunks.chunks_per_row),
                         sizeof(MaxSum));
}

// The plan reports the shape of the second, longer kernel, which reads as much and also writes.
template <typename T, bool kAligned>
PlanPtr NewTwoPassPlan(const View& view, const Cut& cut, const PlanContext& context) {
  const Plan::Traits traits = {.workspace_bytes = WorkspaceBytes(view, cut),
                               .variant = NumberOf(cut.variant)};
  if (!cut.variant.chunked) {
    const auto enqueue = [view, cut](const Operands& operands, const LaunchContext& launch) {
      return cuda::Launch(BlockPerLongRow<T, kAligned>, cut.grid, launch,
                          TensorOf<T>(view, operands));
    };
    return cuda::NewKernelPlan(traits, {BlockPerLongRow<T, kAligned>, cut.grid}, context, enqueue);
  }
  const auto enqueue = [view, cut](const Operands& operands,
                                   const LaunchContext& launch) -> absl::Status {
    const RowTensor<T> tensor = TensorOf<T>(view, operands);
    MaxSum* const parts = static_cast<MaxSum*>(launch.workspace);
    RETURN_IF_ERROR(
        cuda::Launch(ReduceChunks<T, kAligned>, cut.grid, launch, tensor, cut.chunks, parts));
    return cuda::Launch(WriteChunks<T, kAligned>, cut.grid, launch, tensor, cut.chunks, parts);
  };
  return cuda::NewKernelPlan(traits, {WriteChunks<T, kAligned>, cut.grid, /*gpu_kernels=*/2},
                             context, enqueue);
}

absl::StatusOr<PlanPtr> MakeTwoPassPlan(const Problem& problem, const PlanContext& context) {
  if (problem.inputs[0].elements() == 0) return PlanNothing();
  if (context.variant != kRowsChoice)
    RETURN_IF_ERROR(Takes(problem, *context.device, context.variant));
  const Cut cut = CutFor(problem, *context.device, context.variant);
  return DispatchDataType(problem.inputs[0].data_type, [&]<typename T>(T) {
    return cut.variant.aligned ? NewTwoPassPlan<T, true>(ViewOf(problem), cut, context)
                               : NewTwoPassPlan<T, false>(ViewOf(problem), cut, context);
  });
}

std::vector<std::string> Names(DataType) {
  std::vector<std::string> names;
  for (int number = 0; number < kTwoPassVariants; ++number) {
    const TwoPassVariant variant = TwoPassVariantAt(number);
    names.push_back(absl::StrCat(variant.chunked ? "chunks" : "whole rows",
                                 variant.aligned ? " aligned" : " windows",
                                 variant.several_steps ? " in steps" : " at once"));
  }
  return names;
}

}  // namespace

Implementation TwoPassRow() {
  return {.name = "two_pass",
          .family = Family::kCuda,
          .device_kind = DeviceKind::kCuda,
          .summary = "reads a row twice; a row may be shared by several blocks",
          .data_types = {DataType::kFloat32, DataType::kFloat16, DataType::kBFloat16},
          .supports = Supports,
          .variant_names = Names,
          .plan = MakeTwoPassPlan};
}

}  // namespace warpcall::softmax
