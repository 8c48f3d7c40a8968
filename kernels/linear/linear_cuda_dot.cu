// matmul's dot_per_output with bias and activation on each sum: one row of x, or one of the weight.
#include <algorithm>
#include <cstdint>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/linear/linear.h"
#include "kernels/linear/linear_cuda_launch.h"
#include "kernels/matmul/matmul_cuda_dot.cuh"
#include "proto/common/check.h"
#include "proto/common/dispatch.h"

namespace warpcall::linear {
namespace {

using matmul::Adjacent;

// The choices of a launch: the matrix's rows come by 16 bytes or not, the vector is x or the
// weight, sums are cut or not.
struct Way {
  bool in_vectors;
  bool x_is_vector;
  bool cut;
};
constexpr int kWays = 8;

constexpr Way WayAt(int number) { return {number / 4 == 1, number / 2 % 2 == 1, number % 2 == 1}; }
constexpr int NumberOf(const Way& way) {
  return (way.in_vectors ? 4 : 0) + (way.x_is_vector ? 2 : 0) + (way.cut ? 1 : 0);
}

std::string NameOf(const Way& way) {
  return absl::StrCat(way.x_is_vector ? "one row of x" : "one row of weight",
                      way.in_vectors ? " vectors" : " elements", way.cut ? " cut" : " whole");
}

// An output's column is its own number where x has one row, otherwise the only one.
template <typename T, bool kXIsVector>
struct OutputFinish {
  Finish<T> finish;

  __device__ float OfOutput(int64_t output, float sum) const {
    float sums[1] = {sum};
    const Finish<T> of_column = finish.From(kXIsVector ? output : 0);
    of_column.Apply(of_column.template BiasOf<1>(1), sums);
    return sums[0];
  }
};

// matmul's kernels have the matrix first.
template <typename T, int kWidth, bool kXIsVector>
__global__ void __launch_bounds__(matmul::kDotThreads, (matmul::kDotBlocks<T, Adjacent::kDepth>))
    DotPerOutput(const __grid_constant__ matmul::Arguments given, Finish<T> finish) {
  matmul::Arguments arguments = given;
  if constexpr (kXIsVector) {
    arguments.a = given.b;
    arguments.b = given.a;
  }
  constexpr int kOutputs = matmul::DotWalk<Adjacent::kDepth, kWidth>::kOutputs;
  const matmul::BlockShare share = matmul::ShareOfBlock<kOutputs, 1>(arguments, blockIdx.x);
  matmul::DotAlongRows<T, kWidth>(arguments, share, OutputFinish<T, kXIsVector>{finish});
}

template <typename T>
TiledKernel<T> KernelOf(const Way& way) {
  constexpr int kWidth = cuda::kVectorWidth<T>;
  if (way.in_vectors)
    return way.x_is_vector ? DotPerOutput<T, kWidth, true> : DotPerOutput<T, kWidth, false>;
  return way.x_is_vector ? DotPerOutput<T, 1, true> : DotPerOutput<T, 1, false>;
}

// A block's tile: one warp per output, which visits one vector per lane at a time.
constexpr matmul::Tile kTile = {.m = matmul::DotWalk<Adjacent::kDepth, 1>::kOutputs,
                                .n = 1,
                                .depth = 32 * cuda::kVectorWidth<Float16>,
                                .warps_m = matmul::kDotWarps,
                                .warps_n = 1,
                                .stages = 1,
                                .resident = 1,
                                .rate = 100};

Way Uncut(const matmul::Arrangement& arrangement) {
  return {.in_vectors = arrangement.a_in_vectors,
          .x_is_vector = arrangement.arguments.n != 1,
          .cut = false};
}

// REQUIRES: HasSums(product), one of m and n is 1, and the variant takes it.
matmul::Tiling TilingOf(const Problem& product, const DeviceProperties& device, int variant) {
  matmul::Tiling tiling = {};
  tiling.arrangement = ArrangementAlongK(product);
  tiling.tile = kTile;
  Way way = variant == kRowsChoice ? Uncut(tiling.arrangement) : WayAt(variant);
  matmul::Arguments& arguments = tiling.arrangement.arguments;
  if (way.x_is_vector) std::swap(arguments.m, arguments.n);
  const matmul::Size size = matmul::SizeOf(arguments);
  WARPCALL_DCHECK(size.n == 1, size.m, size.n);
  const int wanted = matmul::DotSplits(matmul::BlocksOf(kTile, size, 1), size.k,
                                       std::max(1, device.multiprocessors));
  if (variant == kRowsChoice) {
    tiling.choice = matmul::Cut(kTile, size, wanted);
    way.cut = tiling.choice.splits > 1;
  } else {
    tiling.choice = matmul::Cut(kTile, size, way.cut ? std::max(wanted, 2) : 1);
  }
  tiling.variant = NumberOf(way);
  tiling.blocks = matmul::BlocksOf(kTile, size, tiling.choice.splits);
  arguments.splits = static_cast<uint32_t>(tiling.choice.splits);
  arguments.split_depth = tiling.choice.split_depth;
  arguments.tiles_m = static_cast<uint32_t>(std::min(CeilDivide(size.m, kTile.m), cuda::kGridMax));
  arguments.tiles_n = 1;
  return tiling;
}

absl::Status Supports(const Problem& problem, const DeviceProperties& device) {
  const Problem product = ProductOf(problem);
  if (!matmul::HasSums(product)) return absl::OkStatus();
  const Dims& y = product.outputs[0].dims;
  if (y[0] != 1 && y[1] != 1)
    return absl::UnimplementedError(
        absl::StrCat("dot_per_output takes one row of x or of weight, got ", y[0], " and ", y[1]));
  const int64_t blocks = TilingOf(product, device, kRowsChoice).blocks;
  if (blocks > cuda::kGridMax)
    return absl::UnimplementedError(absl::StrCat("the outputs make ", blocks, " blocks; at most ",
                                                 cuda::kGridMax, " are allowed"));
  return absl::OkStatus();
}

absl::Status Takes(const Problem& problem, const DeviceProperties& device, int variant) {
  RETURN_IF_ERROR(CheckVariantNumber(variant, kWays));
  RETURN_IF_ERROR(Supports(problem, device));
  const Way way = WayAt(variant);
  const matmul::Arrangement arrangement = ArrangementAlongK(ProductOf(problem));
  const Way natural = Uncut(arrangement);
  const char* obstacle = nullptr;
  if (way.x_is_vector != natural.x_is_vector) obstacle = "the vector is the other operand";
  if (way.in_vectors && !natural.in_vectors)
    obstacle = "the matrix's rows are not a whole number of 16-byte vectors";
  if (way.cut && arrangement.arguments.k <= kTile.depth) obstacle = "k is too small to split";
  if (obstacle == nullptr) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("variant \"", NameOf(way), "\" cannot run this problem: ", obstacle));
}

absl::StatusOr<PlanPtr> MakeDotPlan(const Problem& problem, const PlanContext& context) {
  const Problem product = ProductOf(problem);
  if (!matmul::HasSums(product)) return PlanOfBias(problem, context, kWays);
  if (context.variant != kRowsChoice)
    RETURN_IF_ERROR(Takes(problem, *context.device, context.variant));
  const matmul::Tiling tiling = TilingOf(product, *context.device, context.variant);
  const SumsFinish finish = FinishOfSums(problem, static_cast<uint32_t>(tiling.choice.splits));
  return DispatchDataType(problem.outputs[0].data_type, [&]<typename T>(T) {
    return NewTiledPlan<T>(KernelOf<T>(WayAt(tiling.variant)), tiling, finish, context);
  });
}

std::vector<std::string> Names(DataType) {
  std::vector<std::string> names;
  for (int number = 0; number < kWays; ++number) names.push_back(NameOf(WayAt(number)));
  return names;
}

}  // namespace

Implementation DotPerOutputRow() {
  return {.name = "dot_per_output",
          .family = Family::kCuda,
          .device_kind = DeviceKind::kCuda,
          .summary = "one row of x, or of the weight, at the speed of reading the other",
          .data_types = {std::begin(kDataTypes), std::end(kDataTypes)},
          .supports = Supports,
          .variant_names = Names,
          .plan = MakeDotPlan};
}

}  // namespace warpcall::linear
