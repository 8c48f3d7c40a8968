// Rows of up to 2048 elements, each in the registers of 4 to 32 lanes; shorter ones several at a
// time. Warps know nothing of each other, so that while one waits for memory others compute and
// write. Memory is read once and written once; weights come from the first-level cache.
#include <algorithm>
#include <iterator>
#include <string>
#include <vector>

#include "kernels/common/dispatch.h"
#include "kernels/norm/norm_cuda_held.cuh"
#include "kernels/norm/norm_cuda_launch.h"

namespace warpcall::norm {
namespace {

template <typename T, int kShape, bool kVectors>
struct WarpTiling {
  static constexpr RowShape kRow = kWarpShapes[kShape];
  static constexpr int kLanes = kRow.threads;
  static constexpr int kWidth = kVectors ? WidestVector(sizeof(T)) : 1;
  static constexpr int kRows = std::max(1, kInFlight / kRow.elements);
  static constexpr int kRowsPerStep = 32 / kLanes;  // of a warp; neighbouring rows
  static constexpr int kRowsPerWarp = kRowsPerStep * kRows;
  static constexpr int kRowsPerBlock = kWarpsPerBlock * kRowsPerWarp;
  static_assert(kRow.elements % kWidth == 0 && 32 % kLanes == 0);
  using HeldRow = Held<T, kWidth, kRow.elements / kWidth, kLanes>;
};

// Rows whose squares leave float32's range are scaled; the others of the warp stay as they are. All
// lanes take part, as shuffles want.
template <int kLanes, typename HeldRow>
__device__ Scale Rescale(HeldRow& held, bool in_range, double epsilon) {
  const float largest = MaxOfLanes<kLanes>(held.Largest());
  const Scale scale = in_range ? Scale{1, static_cast<float>(epsilon)} : ScaleFor(largest, epsilon);
  held.Multiply(scale.factor);
  return scale;
}

template <typename T, typename Tiling>
__global__ void __launch_bounds__(kWarpsPerBlock * 32) WarpPerRow(RowTensors<T> tensors) {
  using HeldRow = typename Tiling::HeldRow;
  constexpr int kLanes = Tiling::kLanes;
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const int64_t warp = BlockIndex() * kWarpsPerBlock + threadIdx.x / 32;
  if (warp * Tiling::kRowsPerWarp >= tensors.rows) return;
  const int64_t first = warp * Tiling::kRowsPerWarp + threadIdx.x % 32 / kLanes;
  const int vectors = static_cast<int>(tensors.n) / Tiling::kWidth;
  typename HeldRow::Fetched fetched[Tiling::kRows];
  int present[Tiling::kRows];  // vectors of the row, 0 beyond the last
#pragma unroll
  for (int i = 0; i < Tiling::kRows; ++i) {
    const int64_t row = first + i * Tiling::kRowsPerStep;
    present[i] = row < tensors.rows ? vectors : 0;
    const int64_t at = row < tensors.rows ? row * tensors.n : 0;
    fetched[i] = HeldRow::template Fetch</*kReadOnce=*/true>(tensors.x + at, lane, present[i]);
  }
  const bool centered = tensors.bias != nullptr;
#pragma unroll
  for (int i = 0; i < Tiling::kRows; ++i) {
    HeldRow held;
    held.Take(fetched[i], lane, present[i]);
    Part part = MergeOfLanes<kLanes>(held.PartOf(lane, present[i], centered));
    Scale scale{1, static_cast<float>(tensors.epsilon)};
    const bool in_range = IsInRange(part.squares, scale.epsilon);
    if (__any_sync(0xFFFFFFFFu, !in_range)) {
      scale = Rescale<kLanes>(held, in_range, tensors.epsilon);
      part = MergeOfLanes<kLanes>(held.PartOf(lane, present[i], centered));
    }
    const int64_t row = first + i * Tiling::kRowsPerStep;
    held.Store({tensors.weight, tensors.bias, tensors.y + row * tensors.n, lane, present[i]},
               part.mean, ReciprocalOf(part, scale.epsilon));
  }
}

constexpr int kVariantCount = 2 * std::size(kWarpShapes);

// body(kernel, grid, T{}) for a variant.
template <typename Body>
auto WithKernel(const Problem& problem, int variant, const Body& body) {
  const View view = ViewOf(problem);
  return DispatchDataType(problem.inputs[kX].data_type, [&]<typename T>(T type) {
    return DispatchIndex<kVariantCount>(variant, [&](auto number) {
      using Tiling = WarpTiling<T, number.value / 2, number.value % 2 == 1>;
      const cuda::Grid grid =
          GridOf(CeilDivide(view.rows, Tiling::kRowsPerBlock), kWarpsPerBlock * 32);
      return body(WarpPerRow<T, Tiling>, grid, type);
    });
  });
}

absl::Status Supports(const Problem& problem, const DeviceProperties&) {
  return CheckLength(problem, "warp_per_row", 1, CapacityOf(kWarpShapes));
}

std::vector<std::string> Names(DataType) { return NamesOf(kWarpShapes); }

absl::StatusOr<PlanPtr> MakeRowPlan(const Problem& problem, const PlanContext& context) {
  if (problem.inputs[kX].elements() == 0) return PlanNothing();
  const auto takes = [&](int variant) { return TakesShape(kWarpShapes, problem, variant); };
  ASSIGN_OR_RETURN(const int variant,
                   VariantToPlan(context, ChosenShape(kWarpShapes, problem), takes));
  return WithKernel(problem, variant, [&]<typename T>(auto* kernel, const cuda::Grid& grid, T) {
    return NewRowPlan<T>(kernel, {grid, variant}, ViewOf(problem), context);
  });
}

}  // namespace

Implementation WarpPerRowRow() {
  return {.name = "warp_per_row",
          .family = Family::kCuda,
          .device_kind = DeviceKind::kCuda,
          .summary = "a row in the registers of a warp or less",
          .data_types = {DataType::kFloat32, DataType::kFloat16, DataType::kBFloat16},
          .supports = Supports,
          .suits_host_memory = true,
          .variant_names = Names,
          .plan = MakeRowPlan};
}

}  // namespace warpcall::norm
