// A row in the registers of 2 to 32 warps, 16 or 32 elements a thread; memory is read once and
// written once. The block exchanges twice: for the mean, and for the squares around it. Partial
// means and squares would need one exchange, but merging two of them takes a division, ten times a
// row. In float32, where double is fast, one exchange of sums in double does for both.
#include <iterator>
#include <string>
#include <vector>

#include "kernels/common/saturate.h"
#include "kernels/cuda/early_launch.cuh"
#include "kernels/cuda/early_launch.h"
#include "kernels/cuda/prefetch.cuh"
#include "kernels/norm/norm_cuda_held.cuh"
#include "kernels/norm/norm_cuda_launch.h"
#include "proto/common/dispatch.h"

namespace warpcall::norm {
namespace {

template <typename T, int kShape, bool kVectors>
struct BlockTiling {
  static constexpr RowShape kRow = kBlockShapes[kShape];
  static constexpr int kThreads = kRow.threads;
  static constexpr int kResident = kRow.resident;
  static constexpr int kWidth = kVectors ? WidestVector(sizeof(T)) : 1;
  using HeldRow = Held<T, kWidth, kRow.elements / kWidth, kThreads>;
  static constexpr bool kPastL1 = kRow.at_once() * sizeof(T) > kL1BytesAtOnce;
};

template <int kThreads>
struct Shared {
  float sums[kThreads / 32];
  Sums around[kThreads / 32];
  DoubleSums doubles[kThreads / 32];
  float largest[kThreads / 32];
};

template <typename T, int kThreads, typename HeldRow>
__device__ Moments MomentsOf(const HeldRow& held, const Extent& row, Shared<kThreads>* shared) {
  if (!row.centered) return {0, SumOfBlock<kThreads>(held.Squares(), shared->sums)};
  if constexpr (kHasFastDouble && sizeof(T) == sizeof(float)) {
    Moments moments;
    const DoubleSums sums = SumOfBlock<kThreads>(held.SumsInDouble(), shared->doubles);
    if (MomentsBy(sums, row.n, &moments)) return moments;  // in all threads or in none
  }
  const float mean = SumOfBlock<kThreads>(held.Sum(), shared->sums) / row.n;
  const Sums own = held.SumsAround(mean, static_cast<int>(threadIdx.x), row.vectors);
  return Corrected(mean, SumOfBlock<kThreads>(own, shared->around), row.n);
}

template <typename T, typename Tiling>
__global__ void __launch_bounds__(Tiling::kThreads, Tiling::kResident)
    BlockPerRow(RowTensors<T> tensors, int64_t ahead) {
  using HeldRow = typename Tiling::HeldRow;
  constexpr int kThreads = Tiling::kThreads;
  __shared__ Shared<kThreads> shared;
  const int64_t row = BlockIndex();
  const int thread = static_cast<int>(threadIdx.x);
  const int vectors = static_cast<int>(tensors.n) / Tiling::kWidth;
  const auto n = static_cast<float>(tensors.n);
  const bool centered = tensors.bias != nullptr;
  cuda::AwaitKernelAhead();  // blocks without a row, too
  cuda::LetNextKernelBegin();
  if (row >= tensors.rows) return;
  HeldRow held;
  held.Take(HeldRow::template Fetch<Tiling::kPastL1>(tensors.x + row * tensors.n, thread, vectors),
            thread, vectors);
  if (thread == 0) {
    const int64_t row_bytes = tensors.n * static_cast<int64_t>(sizeof(T));
    cuda::RowAhead{row + ahead, tensors.rows, row_bytes}.Prefetch(tensors.x);
  }
  Moments moments = MomentsOf<T>(held, {vectors, n, centered}, &shared);
  Scale scale{1, static_cast<float>(tensors.epsilon)};
  if (!IsInRange(moments.squares, scale.epsilon)) {  // in all threads or in none
    scale = ScaleFor(MaxOfBlock<kThreads>(held.Largest(), shared.largest), tensors.epsilon);
    held.Multiply(scale.factor);
    moments = MomentsOf<T>(held, {vectors, n, centered}, &shared);
  }
  held.template Store<Tiling::kPastL1>(
      {tensors.weight, tensors.bias, tensors.y + row * tensors.n, thread, vectors},
      {moments.mean, ReciprocalOf(moments.squares, n, scale.epsilon)});
}

constexpr int kVariantCount = 2 * std::size(kBlockShapes);

// body(kernel, grid, T{}) for a variant.
template <typename Body>
auto WithKernel(const Problem& problem, int variant, const Body& body) {
  return DispatchDataType(problem.inputs[kX].data_type, [&]<typename T>(T type) {
    return DispatchIndex<kVariantCount>(variant, [&](auto number) {
      using Tiling = BlockTiling<T, number.value / 2, number.value % 2 == 1>;
      return body(BlockPerRow<T, Tiling>, GridOf(ViewOf(problem).rows, Tiling::kThreads), type);
    });
  });
}

absl::Status Supports(const Problem& problem, const DeviceProperties&) {
  return CheckLength(problem, "block_per_row", CapacityOf(kWarpShapes) + 1,
                     CapacityOf(kBlockShapes));
}

std::vector<std::string> Names(DataType) { return NamesOf(kBlockShapes); }

absl::StatusOr<PlanPtr> MakeRowPlan(const Problem& problem, const PlanContext& context) {
  if (problem.inputs[kX].elements() == 0) return PlanNothing();
  const auto takes = [&](int variant) { return TakesShape(kBlockShapes, problem, variant); };
  ASSIGN_OR_RETURN(const int variant,
                   VariantToPlan(context, ChosenShape(kBlockShapes, problem), takes));
  const int64_t ahead =
      SaturatingMultiply(kBlockShapes[variant / 2].resident, context.device->multiprocessors);
  return WithKernel(problem, variant, [&]<typename T>(auto* kernel, const cuda::Grid& grid, T) {
    const cuda::Grid early =
        cuda::EarlyGridOf(reinterpret_cast<const void*>(kernel), grid, *context.device);
    return cuda::NewKernelPlan(
        {.variant = variant, .may_be_replayed = true}, {kernel, grid}, context,
        [kernel, early, ahead, view = ViewOf(problem)](const Operands& operands,
                                                       const LaunchContext& launch) {
          return cuda::Launch(kernel, early, launch, TensorsOf<T>(view, operands), ahead);
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

}  // namespace warpcall::norm
