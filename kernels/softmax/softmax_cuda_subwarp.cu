// Short rows, several per warp: 1 to 16 lanes a row, vectors as wide as the length allows. Rows lie
// one after the other, so a warp's loads and stores are contiguous whatever n is, up to the idle
// lanes that a power of two of them costs.
#include <algorithm>
#include <string>
#include <vector>

#include "kernels/softmax/softmax_cuda_launch.h"
#include "kernels/softmax/softmax_cuda_rows.cuh"
#include "proto/common/dispatch.h"

namespace warpcall::softmax {
namespace {

// Bytes that a lane has in flight, and the rows among which it has them at most. More than a vector
// is what more warps do better: 64 columns of float32 ran at 89 % of a copy with four, at 94 with
// one.
constexpr int kInFlightBytes = kVectorBytes;
constexpr int kRowsMax = 8;

template <typename T>
constexpr SubwarpTable kTable = SubwarpVariantsFor(WidestVector(sizeof(T)));

template <typename T, SubwarpVariant kVariant>
struct SubwarpRows {
  static constexpr RowShape kRow = kSubwarpShapes[kVariant.shape];
  static constexpr int kElements = kRow.elements * kVariant.width;
  static_assert(kElements <= kHeldElementsMax);
  using Tiling = WarpTiling<kRow.threads, kVariant.width, kRow.elements,
                            std::clamp(kInFlightBytes / (kElements * static_cast<int>(sizeof(T))),
                                       1, kRowsMax),
                            /*kAlignedIn=*/true>;
};

template <typename T, typename Tiling>
__global__ void __launch_bounds__(kRowWarps* kWarpThreads) SubwarpPerRow(RowTensor<T> tensor) {
  RowsInWarps<Tiling>(tensor);
}

// body(kernel, grid, T{}) for a variant.
template <typename Body>
auto WithKernel(const Problem& problem, int variant, const Body& body) {
  const View view = ViewOf(problem);
  return DispatchDataType(problem.inputs[0].data_type, [&]<typename T>(T type) {
    return DispatchIndex<kTable<T>.count>(variant, [&](auto number) {
      using Tiling = typename SubwarpRows<T, kTable<T>.variants[number.value]>::Tiling;
      const cuda::Grid grid =
          GridOf(CeilDivide(view.rows(), Tiling::kRowsPerBlock), kRowWarps * kWarpThreads);
      return body(SubwarpPerRow<T, Tiling>, grid, type);
    });
  });
}

const SubwarpTable& TableFor(DataType type) {
  return ElementBytes(type) == sizeof(float) ? kTable<float> : kTable<Float16>;
}

int Chosen(const Problem& problem) {
  const DataType type = problem.inputs[0].data_type;
  const RowPlan plan = PlanRow(ViewOf(problem).n, ElementBytes(type));
  return TableFor(type).NumberOf({plan.width, plan.shape});
}

absl::Status Takes(const Problem& problem, int variant) {
  const SubwarpTable& table = TableFor(problem.inputs[0].data_type);
  RETURN_IF_ERROR(CheckVariantNumber(variant, table.count));
  const View view = ViewOf(problem);
  RETURN_IF_ERROR(CheckContiguous(view, "subwarp_per_row"));
  const SubwarpVariant& taken = table.variants[variant];
  if (view.n % taken.width == 0 && view.n / taken.width <= taken.vectors()) return absl::OkStatus();
  return CannotTake(view.n);
}

std::vector<std::string> Names(DataType type) {
  const SubwarpTable& table = TableFor(type);
  std::vector<std::string> names;
  for (int number = 0; number < table.count; ++number) {
    const RowShape& shape = kSubwarpShapes[table.variants[number].shape];
    names.push_back(absl::StrCat(shape.threads, shape.threads == 1 ? " lane x " : " lanes x ",
                                 shape.elements, " vectors of ", table.variants[number].width));
  }
  return names;
}

absl::Status Supports(const Problem& problem, const DeviceProperties&) {
  if (problem.inputs[0].elements() == 0) return absl::OkStatus();
  const View view = ViewOf(problem);
  RETURN_IF_ERROR(CheckContiguous(view, "subwarp_per_row"));
  if (view.n <= kSubwarpElementsMax) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat("subwarp_per_row takes rows of 1 to ",
                                               kSubwarpElementsMax, " elements; here they have ",
                                               view.n));
}

absl::StatusOr<PlanPtr> MakeRowPlan(const Problem& problem, const PlanContext& context) {
  if (problem.inputs[0].elements() == 0) return PlanNothing();
  const auto takes = [&](int variant) { return Takes(problem, variant); };
  // Rows that the table has nothing for reach this only with a variant, which then refuses them.
  const int chosen = context.variant == kRowsChoice ? Chosen(problem) : kRowsChoice;
  ASSIGN_OR_RETURN(const int variant, VariantToPlan(context, chosen, takes));
  return WithKernel(problem, variant, [&]<typename T>(auto* kernel, const cuda::Grid& grid, T) {
    return NewRowPlan<T>({kernel, grid, ViewOf(problem)}, context, variant);
  });
}

}  // namespace

Implementation SubwarpPerRowRow() {
  return {.name = "subwarp_per_row",
          .family = Family::kCuda,
          .device_kind = DeviceKind::kCuda,
          .summary = "several short rows in the registers of one warp",
          .data_types = {DataType::kFloat32, DataType::kFloat16, DataType::kBFloat16},
          .supports = Supports,
          .suits_host_memory = true,
          .variant_names = Names,
          .plan = MakeRowPlan};
}

}  // namespace warpcall::softmax
