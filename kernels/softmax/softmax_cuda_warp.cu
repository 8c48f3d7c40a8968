// Longer rows, one to four of them per warp at a time: 8 to 64 elements a lane, in registers. Warps
// know nothing of each other, so that while one waits for memory others compute and write.
#include <iterator>
#include <string>
#include <vector>

#include "kernels/softmax/softmax_cuda_launch.h"
#include "kernels/softmax/softmax_cuda_rows.cuh"
#include "proto/common/dispatch.h"

namespace warpcall::softmax {
namespace {

template <typename T, int kShape, bool kAligned>
struct WarpVariant {
  static constexpr RowShape kRow = kWarpShapes[kShape];
  static constexpr int kWidth = WidestVector(sizeof(T));
  static_assert(kRow.threads == kWarpThreads && kRow.elements % kWidth == 0);
  static_assert(kRow.elements <= kHeldElementsMax);
  // One row at a time: on an H200 two or four in flight took up to 2 % longer than more warps do.
  using Tiling = WarpTiling<kWarpThreads, kWidth, kRow.elements / kWidth, /*kRowsIn=*/1, kAligned>;
};

template <typename T, typename Tiling>
__global__ void __launch_bounds__(kRowWarps* kWarpThreads) WarpPerRow(RowTensor<T> tensor) {
  RowsInWarps<Tiling>(tensor);
}

constexpr int kVariantCount = 2 * std::size(kWarpShapes);

// body(kernel, grid, T{}) for a variant.
template <typename Body>
auto WithKernel(const Problem& problem, int variant, const Body& body) {
  const View view = ViewOf(problem);
  return DispatchDataType(problem.inputs[0].data_type, [&]<typename T>(T type) {
    return DispatchIndex<kVariantCount>(variant, [&](auto number) {
      using Tiling = typename WarpVariant<T, number.value / 2, number.value % 2 == 1>::Tiling;
      const cuda::Grid grid =
          GridOf(CeilDivide(view.rows(), Tiling::kRowsPerBlock), kRowWarps * kWarpThreads);
      return body(WarpPerRow<T, Tiling>, grid, type);
    });
  });
}

absl::Status Supports(const Problem& problem, const DeviceProperties&) {
  return CheckWindowedRow(problem, RowMethod::kWarp, "warp_per_row");
}

std::vector<std::string> Names(DataType) { return NamesOfWindows(kWarpShapes); }

absl::StatusOr<PlanPtr> MakeRowPlan(const Problem& problem, const PlanContext& context) {
  if (problem.inputs[0].elements() == 0) return PlanNothing();
  const auto takes = [&](int variant) { return TakesWindow(kWarpShapes, problem, variant); };
  ASSIGN_OR_RETURN(const int variant, VariantToPlan(context, ChosenWindow(problem), takes));
  return WithKernel(problem, variant, [&]<typename T>(auto* kernel, const cuda::Grid& grid, T) {
    return NewRowPlan<T>({kernel, grid, ViewOf(problem)}, context, variant);
  });
}

}  // namespace

Implementation WarpPerRowRow() {
  return {.name = "warp_per_row",
          .family = Family::kCuda,
          .device_kind = DeviceKind::kCuda,
          .summary = "a row in the registers of one warp",
          .data_types = {DataType::kFloat32, DataType::kFloat16, DataType::kBFloat16},
          .supports = Supports,
          .suits_host_memory = true,
          .variant_names = Names,
          .plan = MakeRowPlan};
}

}  // namespace warpcall::softmax
