// Rows of up to 2048 elements, each in the registers of 4 to 32 lanes; shorter ones several at a
// time. Warps are independent, so that while one waits for memory others compute and write. Memory
// is read once and written once; weights come from the first-level cache.
#include <algorithm>
#include <iterator>
#include <string>
#include <vector>

#include "kernels/norm/norm_cuda_held.cuh"
#include "kernels/norm/norm_cuda_launch.h"
#include "proto/common/dispatch.h"

namespace warpcall::norm {
namespace {

template <typename T, int kShape, bool kVectors>
struct WarpTiling {
  static constexpr RowShape kRow = kWarpShapes[kShape];
  static constexpr int kLanes = kRow.threads;
  static constexpr int kWidth = kVectors ? WidestVector(sizeof(T)) : 1;
  static constexpr int kRows = std::max(1, kInFlight / kRow.elements);
  static constexpr int kRowsPerStep = 32 / kLanes;  // per warp; neighbouring rows
  static constexpr int kRowsPerWarp = kRowsPerStep * kRows;
  static constexpr int kRowsPerBlock = kWarpsPerBlock * kRowsPerWarp;
  static_assert(kRow.elements % kWidth == 0 && 32 % kLanes == 0);
  using HeldRow = Held<T, kWidth, kRow.elements / kWidth, kLanes>;
};

template <int kLanes, typename HeldRow>
__device__ Moments MomentsOf(const HeldRow& held, int lane, const Extent& row) {
  if (!row.centered) return {0, SumOfLanes<kLanes>(held.Squares())};
  const float mean = SumOfLanes<kLanes>(held.Sum()) / row.n;
  return Corrected(mean, SumOfLanes<kLanes>(held.SumsAround(mean, lane, row.vectors)), row.n);
}

// Scales rows whose squares leave float32's range; the warp's other rows stay as they are. All
// lanes must take part in the shuffles.
template <int kLanes, typename HeldRow>
__device__ Scale Rescale(HeldRow& held, bool in_range, double epsilon) {
  const float largest = MaxOfLanes<kLanes>(held.Largest());
  const Scale scale = in_range ? Scale{1, static_cast<float>(epsilon)} : ScaleFor(largest, epsilon);
  held.Multiply(scale.factor);
  return scale;
}

// Does each step for all rows of a warp before the next: no row waits for another's shuffles.
template <typename T, typename Tiling>
__global__ void __launch_bounds__(kWarpsPerBlock * 32) WarpPerRow(RowTensors<T> tensors) {
  using HeldRow = typename Tiling::HeldRow;
  constexpr int kLanes = Tiling::kLanes;
  constexpr int kRows = Tiling::kRows;
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const int64_t warp = BlockIndex() * kWarpsPerBlock + threadIdx.x / 32;
  if (warp * Tiling::kRowsPerWarp >= tensors.rows) return;
  const int64_t first = warp * Tiling::kRowsPerWarp + threadIdx.x % 32 / kLanes;
  const int vectors = static_cast<int>(tensors.n) / Tiling::kWidth;
  const auto n = static_cast<float>(tensors.n);
  const bool centered = tensors.bias != nullptr;
  const auto row_of = [&](int i) { return first + i * Tiling::kRowsPerStep; };
  // Vectors of the row, 0 beyond the last row.
  const auto present = [&](int i) { return row_of(i) < tensors.rows ? vectors : 0; };
  typename HeldRow::Fetched fetched[kRows];
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    const int64_t at = row_of(i) < tensors.rows ? row_of(i) * tensors.n : 0;
    fetched[i] = HeldRow::template Fetch</*kPastL1=*/true>(tensors.x + at, lane, present(i));
  }
  typename HeldRow::Fetched weight;
  typename HeldRow::Fetched bias;
  if constexpr (kRows > 1) {
    weight = HeldRow::template Fetch</*kPastL1=*/false>(tensors.weight, lane, vectors);
    if (centered) bias = HeldRow::template Fetch</*kPastL1=*/false>(tensors.bias, lane, vectors);
  }
  HeldRow held[kRows];
  Moments moments[kRows];
#pragma unroll
  for (int i = 0; i < kRows; ++i) held[i].Take(fetched[i], lane, present(i));
#pragma unroll
  for (int i = 0; i < kRows; ++i)
    moments[i] = MomentsOf<kLanes>(held[i], lane, {present(i), n, centered});
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    Scale scale{1, static_cast<float>(tensors.epsilon)};
    const bool in_range = IsInRange(moments[i].squares, scale.epsilon);
    if (__any_sync(0xFFFFFFFFu, !in_range)) {
      scale = Rescale<kLanes>(held[i], in_range, tensors.epsilon);
      moments[i] = MomentsOf<kLanes>(held[i], lane, {present(i), n, centered});
    }
    const typename HeldRow::Target to = {tensors.weight, tensors.bias,
                                         tensors.y + row_of(i) * tensors.n, lane, present(i)};
    const Normalizer normalizer = {moments[i].mean,
                                   ReciprocalOf(moments[i].squares, n, scale.epsilon)};
    if constexpr (kRows > 1)
      held[i].Store(to, normalizer, weight, bias);
    else
      held[i].Store(to, normalizer);
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
