// Short rows, several per warp: 1 to 16 lanes a row, vectors as wide as the length allows. Rows lie
// one after the other, so a warp's loads and stores are contiguous whatever n is, up to the idle
// lanes that a power of two of them costs.
#include <algorithm>
#include <iterator>
#include <type_traits>

#include "kernels/common/dispatch.h"
#include "kernels/softmax/softmax_cuda_launch.h"
#include "kernels/softmax/softmax_cuda_rows.cuh"

namespace warpcall::softmax {
namespace {

// Elements that a lane has in flight, and the rows among which it has them at most.
constexpr int kInFlight = 32;
constexpr int kRowsMax = 8;

constexpr int kShapes = std::size(kSubwarpShapes);

// Number i = index of the width x kShapes + index of the shape.
template <int i>
struct SubwarpVariant {
  static constexpr int kWidth = kSubwarpWidths[i / kShapes];
  static constexpr RowShape kRow = kSubwarpShapes[i % kShapes];
  static constexpr int kElements = kRow.elements * kWidth;
  // PlanRow asks for no others.
  static constexpr bool kUsed = kRow.capacity() * kWidth <= kSubwarpElementsMax;
  static_assert(!kUsed || kElements <= kHeldElementsMax);
  using Tiling = WarpTiling<kRow.threads, kWidth, kRow.elements,
                            std::clamp(kInFlight / kElements, 1, kRowsMax), /*kAlignedIn=*/true>;
};

template <typename T, typename Tiling>
__global__ void __launch_bounds__(kRowWarps* kWarpThreads) SubwarpPerRow(RowTensor<T> tensor) {
  RowsInWarps<Tiling>(tensor);
}

// body(kernel, grid, T{}) with variant i. Result is a Status or holds one.
template <typename Result, typename T, int i, typename Body>
Result WithVariant(std::integral_constant<int, i>, const View& view, const Body& body) {
  using Variant = SubwarpVariant<i>;
  if constexpr (Variant::kUsed && Variant::kWidth <= WidestVector(sizeof(T))) {
    using Tiling = typename Variant::Tiling;
    const int64_t blocks = CeilDivide(view.rows(), Tiling::kRowsPerBlock);
    return body(SubwarpPerRow<T, Tiling>, GridOf(blocks, kRowWarps * kWarpThreads), T{});
  } else {
    return absl::InternalError(absl::StrCat("no variant for rows of ", view.n, " elements"));
  }
}

// With the variant that the problem takes.
template <typename Result, typename Body>
Result WithKernel(const Problem& problem, const Body& body) {
  const View view = ViewOf(problem);
  const RowPlan plan = PlanRow(view.n, ElementBytes(problem.inputs[0].data_type));
  const auto width = std::find(std::begin(kSubwarpWidths), std::end(kSubwarpWidths), plan.width);
  const int index = static_cast<int>(width - std::begin(kSubwarpWidths)) * kShapes + plan.shape;
  return DispatchDataType(problem.inputs[0].data_type, [&]<typename T>(T) {
    return DispatchIndex<std::size(kSubwarpWidths) * kShapes>(
        index, [&](auto i) { return WithVariant<Result, T>(i, view, body); });
  });
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

absl::Status Launch(const Problem& problem, const Operands& operands,
                    const LaunchContext& context) {
  if (problem.inputs[0].elements() == 0) return absl::OkStatus();
  return WithKernel<absl::Status>(
      problem, [&]<typename T>(auto* kernel, const cuda::Grid& grid, T) {
        return cuda::Launch(kernel, grid, context, TensorOf<T>(problem, operands));
      });
}

absl::StatusOr<LaunchShape> Shape(const Problem& problem, const DeviceProperties& device) {
  if (problem.inputs[0].elements() == 0) return LaunchShape{};
  return WithKernel<absl::StatusOr<LaunchShape>>(problem,
                                                 [&](auto* kernel, const cuda::Grid& grid, auto) {
                                                   return cuda::ShapeOf(kernel, grid, device);
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
          .workspace_bytes = nullptr,
          .launch = Launch,
          .shape = Shape,
          .touches_once = true};
}

}  // namespace warpcall::softmax
