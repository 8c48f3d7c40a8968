// The row dot_per_output: a matrix times a vector. matmul_cuda_dot.cuh has the kernels.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/matmul/matmul.h"
#include "kernels/matmul/matmul_cuda_dot.cuh"
#include "kernels/matmul/matmul_cuda_launch.h"
#include "proto/common/check.h"
#include "proto/common/dispatch.h"

namespace warpcall::matmul {
namespace {

// Makes a the matrix and b the vector. The vector's elements are adjacent, whichever operand it is.
Arrangement WithVectorSecond(Arrangement arrangement) {
  Arguments& arguments = arrangement.arguments;
  if (arguments.n == 1) return arrangement;
  std::swap(arguments.m, arguments.n);
  std::swap(arguments.a_stride, arguments.b_stride);
  std::swap(arguments.batch.a_stride, arguments.batch.b_stride);
  std::swap(arrangement.a, arrangement.b);
  std::swap(arrangement.a_in_vectors, arrangement.b_in_vectors);
  return arrangement;
}

template <typename T>
constexpr int kWidthMax = cuda::kVectorWidth<T>;

template <typename T, int kKernel>
struct KernelAt {
  static constexpr DotVariant kVariant = DotVariantAt(kDotVariantsPerKernel * kKernel);
  static constexpr int kWidth = kVariant.in_vectors ? kWidthMax<T> : 1;
  static constexpr TiledKernel kFunction = DotPerOutput<T, kVariant.matrix, kWidth>;
  static constexpr int kOutputs = DotWalk<kVariant.matrix, kWidth>::kOutputs;
};

struct Kernel {
  TiledKernel function;
  int outputs;  // per block
};

template <typename T, int... kKernels>
Kernel KernelFrom(int kernel, std::integer_sequence<int, kKernels...>) {
  static constexpr Kernel kTable[] = {
      {KernelAt<T, kKernels>::kFunction, KernelAt<T, kKernels>::kOutputs}...};
  return kTable[kernel];
}

Kernel KernelOf(DataType type, int variant) {
  return DispatchDataType(type, [&](auto value) {
    return KernelFrom<decltype(value)>(variant / kDotVariantsPerKernel,
                                       std::make_integer_sequence<int, kDotKernels>());
  });
}

// Where the matrix is read by vectors along k, the vector can be too: its batches begin at
// multiples of k, as the matrix's rows do.
DotVariant Uncut(const Problem& problem, const Arrangement& arrangement) {
  return {.matrix = arrangement.a,
          .in_vectors = arrangement.a_in_vectors,
          .a_is_vector = DecodeShape(problem).n != 1,
          .cut = false};
}

// Splits begin at multiples of a visit of a warp, and so of a vector.
constexpr int kDepth = 32 * kWidthMax<Float16>;

Choice CutFor(const Tiling& tiling, const DeviceProperties& device, int splits_min) {
  const Size size = SizeOf(tiling.arrangement.arguments);
  const int wanted =
      DotSplits(BlocksOf(tiling.tile, size, 1), size.k, std::max(1, device.multiprocessors));
  return Cut(tiling.tile, size, std::max(wanted, splits_min));
}

// REQUIRES: HasSums(problem), m or n is 1, and the variant takes the problem.
Tiling TilingOf(const Problem& problem, const DeviceProperties& device, int variant) {
  WARPCALL_DCHECK(HasSums(problem));
  Tiling tiling = {};
  tiling.arrangement = WithVectorSecond(ArrangementOf(problem));
  Arguments& arguments = tiling.arrangement.arguments;
  DotVariant taken =
      variant == kRowsChoice ? Uncut(problem, tiling.arrangement) : DotVariantAt(variant);
  const Kernel kernel = KernelOf(problem.outputs[0].data_type, NumberOf(taken));
  tiling.tile.m = kernel.outputs;
  tiling.tile.n = 1;
  tiling.tile.depth = kDepth;
  tiling.tile.warps_m = kDotWarps;
  tiling.tile.warps_n = 1;
  const Size size = SizeOf(arguments);
  WARPCALL_DCHECK(size.n == 1, size.m, size.n);
  if (variant == kRowsChoice) {
    tiling.choice = CutFor(tiling, device, 1);
    taken.cut = tiling.choice.splits > 1;
  } else {
    tiling.choice = taken.cut ? CutFor(tiling, device, 2) : Cut(tiling.tile, size, 1);
  }
  tiling.variant = NumberOf(taken);
  tiling.blocks = BlocksOf(tiling.tile, size, tiling.choice.splits);
  arguments.splits = static_cast<uint32_t>(tiling.choice.splits);
  arguments.split_depth = tiling.choice.split_depth;
  arguments.tiles_m =
      static_cast<uint32_t>(std::min(CeilDivide(size.m, tiling.tile.m), cuda::kGridMax));
  arguments.tiles_n = 1;
  return tiling;
}

absl::Status Supports(const Problem& problem, const DeviceProperties& device) {
  if (!HasSums(problem)) return absl::OkStatus();
  const Shape shape = DecodeShape(problem);
  if (shape.m != 1 && shape.n != 1)
    return absl::UnimplementedError(
        absl::StrCat("dot_per_output takes m = 1 or n = 1, got m ", shape.m, ", n ", shape.n));
  const int64_t blocks = TilingOf(problem, device, kRowsChoice).blocks;
  if (blocks > cuda::kGridMax)
    return absl::UnimplementedError(absl::StrCat("the outputs make ", blocks, " blocks; at most ",
                                                 cuda::kGridMax, " are allowed"));
  return absl::OkStatus();
}

// Why `variant` cannot take a problem that the row supports.
std::string Obstacle(const Problem& problem, const DotVariant& variant) {
  const Arrangement arrangement = WithVectorSecond(ArrangementOf(problem));
  const DotVariant natural = Uncut(problem, arrangement);
  if (variant.matrix != natural.matrix) return "the matrix lies the other way";
  if (variant.a_is_vector != natural.a_is_vector) return "the vector is the other operand";
  if (variant.in_vectors && !natural.in_vectors)
    return "the matrix's rows are not a whole number of 16-byte vectors";
  if (variant.cut && arrangement.arguments.k <= kDepth)
    return absl::StrCat("k is ", arrangement.arguments.k, "; sums of ", kDepth + 1,
                        " terms and more can be cut");
  return "";
}

absl::Status Takes(const Problem& problem, const DeviceProperties& device, int variant) {
  RETURN_IF_ERROR(CheckVariantNumber(variant, kDotVariants));
  RETURN_IF_ERROR(Supports(problem, device));
  const std::string obstacle = Obstacle(problem, DotVariantAt(variant));
  if (obstacle.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("variant \"", NameOf(DotVariantAt(variant)),
                                                 "\" cannot run this problem: ", obstacle));
}

std::vector<std::string> Names(DataType) {
  std::vector<std::string> names;
  for (int number = 0; number < kDotVariants; ++number)
    names.push_back(NameOf(DotVariantAt(number)));
  return names;
}

absl::StatusOr<PlanPtr> MakeDotPlan(const Problem& problem, const PlanContext& context) {
  if (!HasSums(problem)) return PlanOfZeros(problem);
  if (context.variant != kRowsChoice)
    RETURN_IF_ERROR(Takes(problem, *context.device, context.variant));
  const Tiling tiling = TilingOf(problem, *context.device, context.variant);
  const DataType type = problem.outputs[0].data_type;
  const TiledKernel kernel = KernelOf(type, tiling.variant).function;
  return DispatchDataType(type, [&]<typename T>(T) {
    return NewTiledPlan<T>(kernel, tiling, context, DotVariantAt(tiling.variant).a_is_vector);
  });
}

}  // namespace

Implementation DotPerOutputRow() {
  return {.name = "dot_per_output",
          .family = Family::kCuda,
          .device_kind = DeviceKind::kCuda,
          .summary = "a matrix times a vector at the speed of reading it",
          .data_types = {std::begin(kDataTypes), std::end(kDataTypes)},
          .supports = Supports,
          .variant_names = Names,
          .plan = MakeDotPlan};
}

}  // namespace warpcall::matmul
