// A row in the registers of 2 to 32 warps, 8 to 32 elements a thread; memory is read once and
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
  static constexpr RowShape kRow = BlockShapesOf(sizeof(T))[kShape];
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

template <int kThreads, typename HeldRow>
__device__ Moments MomentsOf(const HeldRow& held, const Extent& row, Shared<kThreads>* shared) {
  if (!row.centered) return {0, SumOfBlock<kThreads>(held.Squares(), shared->sums)};
  const float mean = SumOfBlock<kThreads>(held.Sum(), shared->sums) / row.n;
  const Sums own = held.SumsAround(mean, static_cast<int>(threadIdx.x), row.vectors);
  return Corrected(mean, SumOfBlock<kThreads>(own, shared->around), row.n);
}

// As MomentsOf, by one exchange where it can be; false where the sums do not tell.
template <typename T, int kThreads, typename HeldRow>
__device__ bool QuickMomentsOf(const HeldRow& held, const Extent& row, Shared<kThreads>* shared,
                               Moments* moments) {
  if constexpr (kHasFastDouble && sizeof(T) == sizeof(float)) {
    if (row.centered)
      return MomentsBy(SumOfBlock<kThreads>(held.SumsInDouble(), shared->doubles), row.n, moments);
  }
  *moments = MomentsOf<kThreads>(held, row, shared);
  return true;
}

// A block's row in memory.
template <typename T>
struct RowPlace {
  const T* x;
  const T* weight;
  const T* bias;
  T* y;
};

// Normalizes a row anew of which the quick moments do not tell, or whose squares leave float32's
// range. Not inlined: the registers for it would be missing to all rows. Called by the whole block.
template <typename T, typename Tiling>
__device__ __noinline__ void StoreSlowly(RowPlace<T> place, Extent row, double epsilon,
                                         Shared<Tiling::kThreads>* shared) {
  using HeldRow = typename Tiling::HeldRow;
  constexpr int kThreads = Tiling::kThreads;
  const int thread = static_cast<int>(threadIdx.x);
  __syncthreads();  // then nobody reads `shared` any more
  HeldRow held;
  held.Take(HeldRow::template Fetch</*kPastL1=*/false>(place.x, thread, row.vectors), thread,
            row.vectors);
  Moments moments = MomentsOf<kThreads>(held, row, shared);
  Scale scale{1, static_cast<float>(epsilon)};
  if (!IsInRange(moments.squares, scale.epsilon)) {  // in all threads or in none
    scale = ScaleFor(MaxOfBlock<kThreads>(held.Largest(), shared->largest), epsilon);
    held.Multiply(scale.factor);
    moments = MomentsOf<kThreads>(held, row, shared);
  }
  held.template Store</*kPastL1=*/false>(
      {place.weight, place.bias, place.y, thread, row.vectors},
      {moments.mean, ReciprocalOf(moments.squares, row.n, scale.epsilon)});
}

template <typename T, typename Tiling>
__global__ void __launch_bounds__(Tiling::kThreads, Tiling::kResident)
    BlockPerRow(RowTensors<T> tensors, int64_t ahead) {
  using HeldRow = typename Tiling::HeldRow;
  constexpr int kThreads = Tiling::kThreads;
  __shared__ Shared<kThreads> shared;
  const int64_t row = BlockIndex();
  const int thread = static_cast<int>(threadIdx.x);
  const Extent extent{static_cast<int>(tensors.n) / Tiling::kWidth, static_cast<float>(tensors.n),
                      tensors.bias != nullptr};
  const RowPlace<T> place{tensors.x + row * tensors.n, tensors.weight, tensors.bias,
                          tensors.y + row * tensors.n};
  cuda::AwaitKernelAhead();  // blocks without a row, too
  cuda::LetNextKernelBegin();
  if (row >= tensors.rows) return;
  HeldRow held;
  held.Take(HeldRow::template Fetch<Tiling::kPastL1>(place.x, thread, extent.vectors), thread,
            extent.vectors);
  if (thread == 0) {
    const int64_t row_bytes = tensors.n * static_cast<int64_t>(sizeof(T));
    cuda::RowAhead{row + ahead, tensors.rows, row_bytes}.Prefetch(tensors.x);
  }
  const auto epsilon = static_cast<float>(tensors.epsilon);
  Moments moments;
  if (!QuickMomentsOf<T, kThreads>(held, extent, &shared, &moments) ||
      !IsInRange(moments.squares, epsilon)) {  // in all threads or in none
    StoreSlowly<T, Tiling>(place, extent, tensors.epsilon, &shared);
    return;
  }
  held.template Store<Tiling::kPastL1>(
      {place.weight, place.bias, place.y, thread, extent.vectors},
      {moments.mean, ReciprocalOf(moments.squares, extent.n, epsilon)});
}

constexpr int kVariantCount = 2 * kBlockShapeCount;

const BlockShapes& ShapesFor(const Problem& problem) {
  return BlockShapesOf(ElementBytes(problem.inputs[kX].data_type));
}

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
                     CapacityOf(ShapesFor(problem)));
}

std::vector<std::string> Names(DataType type) { return NamesOf(BlockShapesOf(ElementBytes(type))); }

absl::StatusOr<PlanPtr> MakeRowPlan(const Problem& problem, const PlanContext& context) {
  if (problem.inputs[kX].elements() == 0) return PlanNothing();
  const BlockShapes& shapes = ShapesFor(problem);
  const auto takes = [&](int variant) { return TakesShape(shapes, problem, variant); };
  ASSIGN_OR_RETURN(const int variant, VariantToPlan(context, ChosenShape(shapes, problem), takes));
  const int64_t ahead =
      SaturatingMultiply(shapes[variant / 2].resident, context.device->multiprocessors);
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
