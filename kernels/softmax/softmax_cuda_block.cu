// A row in the registers of 2 to 32 warps, 16 to 32 elements a thread; memory is read once and
// written once. Every thread takes exp with the maximum of its own elements, so that one exchange
// of (maximum, sum) through shared memory, one barrier, is all that the block waits for.
#include <string>
#include <vector>

#include "kernels/common/saturate.h"
#include "kernels/cuda/early_launch.cuh"
#include "kernels/cuda/prefetch.cuh"
#include "kernels/softmax/softmax_cuda_launch.h"
#include "kernels/softmax/softmax_cuda_math.cuh"
#include "kernels/softmax/softmax_cuda_window.cuh"
#include "proto/common/dispatch.h"

namespace warpcall::softmax {
namespace {

template <typename T, int kShape, bool kAlignedIn>
struct BlockTiling {
  static constexpr RowShape kRow = BlockShapesOf(sizeof(T))[kShape];
  static constexpr int kThreads = kRow.threads;
  static constexpr int kElements = kRow.elements;
  static constexpr int kWidth = WidestVector(sizeof(T));
  static constexpr int kVectors = kElements / kWidth;
  static constexpr bool kAligned = kAlignedIn;
  static constexpr bool kPastL1 = kRow.at_once() * sizeof(T) > kL1BytesAtOnce;
  static_assert(kElements % kWidth == 0 && kElements <= kHeldElementsMax);
  static_assert(kThreads % kWarpThreads == 0 && kThreads <= 1024);
};

template <typename T, typename Tiling>
__global__ void __launch_bounds__(Tiling::kThreads, Tiling::kRow.resident)
    BlockPerRow(RowTensor<T> tensor, int64_t ahead) {
  __shared__ MaxSum shared[Tiling::kThreads / kWarpThreads];
  const int64_t row = BlockIndex();
  const Window<T> window = WholeRow<Tiling::kWidth, Tiling::kAligned>(tensor, row);
  const int thread = threadIdx.x;
  cuda::AwaitKernelAhead();  // blocks without a row, too
  cuda::LetNextKernelBegin();
  if (row >= tensor.rows) return;
  Held<T, Tiling::kWidth, Tiling::kVectors, Tiling::kThreads, Tiling::kAligned> held;
  held.template Load<Tiling::kPastL1>(window, thread);
  if (Tiling::kRow.ahead > 0 && thread == 0) {
    const int64_t row_bytes = tensor.n * static_cast<int64_t>(sizeof(T));
    cuda::RowAhead{row + ahead, tensor.rows, row_bytes}.Prefetch(tensor.x);
  }
  const float max = held.Max();
  const float sum = held.Exponentiate(max);
  const MaxSum total = MergeOfBlock<Tiling::kThreads>({max, sum}, shared);
  held.Store(window, thread, ScaleOf(max, total));
}

constexpr int kVariantCount = 2 * kBlockShapeCount;

// body(kernel, grid, T{}) for a variant.
template <typename Body>
auto WithKernel(const Problem& problem, int variant, const Body& body) {
  const View view = ViewOf(problem);
  return DispatchDataType(problem.inputs[0].data_type, [&]<typename T>(T type) {
    return DispatchIndex<kVariantCount>(variant, [&](auto number) {
      using Tiling = BlockTiling<T, number.value / 2, number.value % 2 == 1>;
      return body(BlockPerRow<T, Tiling>, GridOf(view.rows(), Tiling::kThreads), type);
    });
  });
}

absl::Status Supports(const Problem& problem, const DeviceProperties&) {
  return CheckWindowedRow(problem, RowMethod::kBlock, "block_per_row");
}

std::vector<std::string> Names(DataType type) {
  return NamesOfWindows(BlockShapesOf(ElementBytes(type)));
}

absl::StatusOr<PlanPtr> MakeRowPlan(const Problem& problem, const PlanContext& context) {
  if (problem.inputs[0].elements() == 0) return PlanNothing();
  const auto& shapes = BlockShapesOf(ElementBytes(problem.inputs[0].data_type));
  const auto takes = [&](int variant) { return TakesWindow(shapes, problem, variant); };
  ASSIGN_OR_RETURN(const int variant, VariantToPlan(context, ChosenWindow(problem), takes));
  const int64_t ahead =
      SaturatingMultiply(shapes[variant / 2].ahead, context.device->multiprocessors);
  return WithKernel(problem, variant, [&]<typename T>(auto* kernel, const cuda::Grid& grid, T) {
    const cuda::Grid early =
        cuda::EarlyGridOf(reinterpret_cast<const void*>(kernel), grid, *context.device);
    return cuda::NewKernelPlan(
        {.variant = variant, .may_be_replayed = true}, {kernel, grid}, context,
        [kernel, early, ahead, view = ViewOf(problem)](const Operands& operands,
                                                       const LaunchContext& launch) {
          return cuda::Launch(kernel, early, launch, TensorOf<T>(view, operands), ahead);
        });
  });
}

}  // namespace

Implementation BlockPerRowRow() {
  return {.name = "block_per_row",
          .family = Family::kCuda,
          .device_kind = DeviceKind::kCuda,
          .summary = "a row in the registers of one block",
          .data_types = {DataType::kFloat32, DataType::kFloat16, DataType::kBFloat16},
          .supports = Supports,
          .suits_host_memory = true,
          .variant_names = Names,
          .plan = MakeRowPlan};
}

}  // namespace warpcall::softmax
