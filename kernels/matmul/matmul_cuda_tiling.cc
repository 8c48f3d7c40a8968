#include "kernels/matmul/matmul_cuda_tiling.h"

#include <cuda_runtime_api.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/cuda_status.h"
#include "proto/common/check.h"
#include "proto/common/status_macros.h"

namespace warpcall::matmul {
namespace {

// The largest grid in x.
constexpr int64_t kBlocksMax = 0x7FFFFFFF;
constexpr int64_t kVectorBytes = 16;
constexpr int32_t kArchitectureAmpere = 80;
constexpr int32_t kArchitectureHopper = 90;

BatchWalk WalkOf(const Shape& shape) {
  static_assert(kBatchRankMax == kRankMax - 2);
  BatchWalk walk = {};
  for (const BatchDim& dim : shape.batch) {
    WARPCALL_CHECK(walk.rank < static_cast<int>(kBatchRankMax), walk.rank);
    walk.size[walk.rank] = dim.size;
    walk.a_stride[walk.rank] = dim.a_stride;
    walk.b_stride[walk.rank] = dim.b_stride;
    ++walk.rank;
  }
  return walk;
}

// Rows of adjacent elements.
struct Matrix {
  int64_t columns;
  int64_t stride;
};

// An operand's start is aligned by contract; its rows and its matrices follow at these strides.
bool InVectors(const Matrix& matrix, const BatchWalk& walk, const int64_t (&strides)[kBatchRankMax],
               size_t element_bytes) {
  const int64_t width = kVectorBytes / static_cast<int64_t>(element_bytes);
  if (matrix.columns % width != 0 || matrix.stride % width != 0) return false;
  for (int i = 0; i < walk.rank; ++i)
    if (strides[i] % width != 0) return false;
  return true;
}

Chip ChipOf(const TileSet& set, const DeviceProperties& device) {
  return {.multiprocessors = std::max(1, device.multiprocessors),
          .products_per_cycle = set.products_per_cycle,
          .shares = set.shares};
}

bool Fits(const TileSet& set, const Tile& tile, const DeviceProperties& device) {
  return static_cast<int64_t>(set.shared_bytes(tile)) <= device.shared_memory_per_block_bytes;
}

absl::Status CheckBlocks(const Tile& tile, int64_t blocks) {
  if (blocks <= kBlocksMax) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat("the outputs make ", blocks, " tiles of ", tile.m,
                                               " x ", tile.n, "; at most ", kBlocksMax,
                                               " are allowed"));
}

absl::StatusOr<Choice> ChooseFor(const Order& order, const TileSet& set,
                                 const DeviceProperties& device) {
  const std::span<const Tile> tiles = set.variants.TilesFor(order.in_vectors);
  const Choice choice = ChooseTile(tiles, SizeOf(order.arrangement.arguments), ChipOf(set, device),
                                   [&](const Tile& tile) { return Fits(set, tile, device); });
  if (choice.tile >= 0) return choice;
  return absl::UnimplementedError(
      absl::StrCat("the smallest tile takes ", set.shared_bytes(tiles.back()),
                   " bytes of shared memory; blocks of this device have ",
                   device.shared_memory_per_block_bytes));
}

// Each element of an operand meets so many of the other: the copy takes some hundredths of the time
// then, the loads of elements a tenth.
constexpr int64_t kTurnFrom = 1024;

bool IsOneMatrix(const BatchWalk& walk, const int64_t (&strides)[kBatchRankMax]) {
  return std::all_of(strides, strides + walk.rank, [](int64_t stride) { return stride == 0; });
}

bool Turns(const Order& order, const TileSet& set) {
  const Arrangement& arrangement = order.arrangement;
  const Arguments& arguments = arrangement.arguments;
  const bool a = arrangement.a == Adjacent::kDepth;
  const bool b = arrangement.b == Adjacent::kDepth;
  if (!set.turns || (a && !IsOneMatrix(arguments.batch, arguments.batch.a_stride)) ||
      (b && !IsOneMatrix(arguments.batch, arguments.batch.b_stride)))
    return false;
  if (order.variant == kRowsChoice) return std::min(arguments.m, arguments.n) >= kTurnFrom;
  const TiledVariant variant = set.variants.At(order.variant);
  return variant.a == Adjacent::kOuter && variant.b == Adjacent::kOuter;
}

// Puts copies along m and n in the place of operands along k.
void Turn(Arrangement* arrangement, Tiling* tiling) {
  Arguments& arguments = arrangement->arguments;
  if (arrangement->a == Adjacent::kDepth) {
    tiling->a_turned = {arguments.k, arguments.m, sizeof(float)};
    arguments.a_stride = tiling->a_turned.stride();
    arrangement->a = Adjacent::kOuter;
    arrangement->a_in_vectors = true;
  }
  if (arrangement->b == Adjacent::kDepth) {
    tiling->b_turned = {arguments.k, arguments.n, sizeof(float)};
    arguments.b_stride = tiling->b_turned.stride();
    arrangement->b = Adjacent::kOuter;
    arrangement->b_in_vectors = true;
  }
}

// Why variant order.variant cannot take the problem on `device`.
std::string Obstacle(const Order& order, const TileSet& set, const DeviceProperties& device) {
  const TiledVariant variant = set.variants.At(order.variant);
  const Tile& tile = set.variants.TileOf(variant);
  const int64_t k = order.arrangement.arguments.k;
  if (variant.a != order.arrangement.a || variant.b != order.arrangement.b)
    return "an operand lies the other way";
  if (variant.in_vectors && !order.in_vectors)
    return "the rows of an operand are not a whole number of 16-byte vectors";
  if (variant.cut && k <= tile.depth)
    return absl::StrCat("k is ", k, "; sums of ", tile.depth + 1, " terms and more can be cut");
  if (!Fits(set, tile, device))
    return absl::StrCat("a block takes ", set.shared_bytes(tile), " bytes of shared memory; ",
                        "blocks of this device have ", device.shared_memory_per_block_bytes);
  return "";
}

int NumberOf(const Choice& choice, const Order& order, const TileSet& set) {
  return set.variants.NumberOf({.in_vectors = order.in_vectors,
                                .tile = choice.tile,
                                .a = order.arrangement.a,
                                .b = order.arrangement.b,
                                .cut = choice.splits > 1});
}

// The choice for a variant that the context names: the implementation's own if it is that variant.
absl::StatusOr<Choice> ChoiceOf(const Order& order, const TileSet& set,
                                const DeviceProperties& device) {
  const std::string obstacle = Obstacle(order, set, device);
  if (!obstacle.empty())
    return absl::InvalidArgumentError(absl::StrCat("variant \"",
                                                   NameOf(set.variants, order.variant),
                                                   "\" cannot run this problem: ", obstacle));
  const absl::StatusOr<Choice> chosen = ChooseFor(order, set, device);
  if (chosen.ok() && NumberOf(*chosen, order, set) == order.variant) return chosen;
  const TiledVariant variant = set.variants.At(order.variant);
  const Tile& tile = set.variants.TileOf(variant);
  const Size size = SizeOf(order.arrangement.arguments);
  Choice choice = variant.cut ? CutTile(tile, size, ChipOf(set, device)) : Cut(tile, size, 1);
  choice.tile = variant.tile;
  return choice;
}

}  // namespace

Arrangement ArrangementOf(const Problem& problem) {
  const Shape shape = DecodeShape(problem);
  const size_t element_bytes = ElementBytes(problem.outputs[0].data_type);
  Arrangement arrangement = {};
  arrangement.a = shape.a_column_stride == 1 ? Adjacent::kDepth : Adjacent::kOuter;
  arrangement.b = shape.b_column_stride == 1 ? Adjacent::kOuter : Adjacent::kDepth;
  Arguments& arguments = arrangement.arguments;
  arguments.m = shape.m;
  arguments.n = shape.n;
  arguments.k = shape.k;
  arguments.batches = shape.batches();
  arguments.batch = WalkOf(shape);
  arguments.a_stride =
      arrangement.a == Adjacent::kDepth ? shape.a_row_stride : shape.a_column_stride;
  arguments.b_stride =
      arrangement.b == Adjacent::kOuter ? shape.b_row_stride : shape.b_column_stride;
  const Matrix a = arrangement.a == Adjacent::kDepth ? Matrix{shape.k, arguments.a_stride}
                                                     : Matrix{shape.m, arguments.a_stride};
  const Matrix b = arrangement.b == Adjacent::kDepth ? Matrix{shape.k, arguments.b_stride}
                                                     : Matrix{shape.n, arguments.b_stride};
  arrangement.a_in_vectors = InVectors(a, arguments.batch, arguments.batch.a_stride, element_bytes);
  arrangement.b_in_vectors = InVectors(b, arguments.batch, arguments.batch.b_stride, element_bytes);
  return arrangement;
}

bool HasSums(const Problem& problem) {
  return problem.outputs[0].elements() > 0 && DecodeShape(problem).k > 0;
}

PlanPtr PlanOfZeros(const Problem& problem) {
  const size_t bytes = problem.outputs[0].bytes();
  if (bytes == 0) return PlanNothing();
  return NewPlan({}, [bytes](const Operands& operands, const LaunchContext& context) {
    // All bits zero is zero in every data type.
    return cuda::ToStatus(
        cudaMemsetAsync(operands.outputs[0], 0, bytes, static_cast<cudaStream_t>(context.stream)),
        "writing zeros");
  });
}

size_t Tiling::copies_bytes() const { return a_turned.bytes() + b_turned.bytes(); }

size_t Tiling::workspace_bytes() const {
  return copies_bytes() + PartialBytes(SizeOf(arrangement.arguments), choice) +
         LeftBytes(arrangement.arguments.runs.count, tile.threads(), tile.m * tile.n);
}

size_t Tiling::left_flag_bytes() const {
  return LeftFlagBytes(arrangement.arguments.runs.count, tile.threads());
}

absl::Status LowerFlags(void* flags, size_t bytes, const LaunchContext& context) {
  if (bytes == 0) return absl::OkStatus();
  return cuda::ToStatus(cudaMemsetAsync(flags, 0, bytes, static_cast<cudaStream_t>(context.stream)),
                        "lowering flags");
}

int32_t Tiling::gpu_kernels() const {
  return 1 + (choice.splits > 1) + (a_turned.rows > 0) + (b_turned.rows > 0);
}

absl::StatusOr<Tiling> MakeTiling(const Order& asked, const TileSet& set,
                                  const DeviceProperties& device) {
  WARPCALL_DCHECK(asked.arrangement.arguments.m > 0 && asked.arrangement.arguments.n > 0 &&
                      asked.arrangement.arguments.k > 0,
                  asked.arrangement.arguments.m, asked.arrangement.arguments.n,
                  asked.arrangement.arguments.k);
  if (asked.variant != kRowsChoice)
    RETURN_IF_ERROR(CheckVariantNumber(asked.variant, set.variants.Count()));
  Order order = asked;
  Tiling tiling{};
  if (Turns(asked, set)) {
    Turn(&order.arrangement, &tiling);
    order.in_vectors = order.arrangement.a_in_vectors && order.arrangement.b_in_vectors;
  }
  tiling.arrangement = order.arrangement;
  tiling.variant = order.variant;
  if (order.variant == kRowsChoice) {
    ASSIGN_OR_RETURN(tiling.choice, ChooseFor(order, set, device));
    tiling.variant = NumberOf(tiling.choice, order, set);
  } else {
    ASSIGN_OR_RETURN(tiling.choice, ChoiceOf(order, set, device));
  }
  Arguments& arguments = tiling.arrangement.arguments;
  const Size size = SizeOf(arguments);
  tiling.tile = set.variants.TileOf(set.variants.At(tiling.variant));
  tiling.shared_bytes = set.shared_bytes(tiling.tile);
  tiling.blocks = BlocksOf(tiling.tile, size, tiling.choice.splits);
  RETURN_IF_ERROR(CheckBlocks(tiling.tile, tiling.blocks));
  const auto shared =
      static_cast<uint32_t>(SharedTiles(tiling.tile, size, tiling.choice, ChipOf(set, device)));
  arguments.whole = static_cast<uint32_t>(tiling.blocks) - shared;
  arguments.runs = MakeRuns(shared, static_cast<uint32_t>(CeilDivide(size.k, tiling.tile.depth)),
                            static_cast<uint32_t>(std::max(1, device.multiprocessors)));
  tiling.blocks = int64_t{arguments.whole} + arguments.runs.count;
  arguments.splits = static_cast<uint32_t>(tiling.choice.splits);
  arguments.split_depth = tiling.choice.split_depth;
  arguments.tiles_m = static_cast<uint32_t>(CeilDivide(size.m, tiling.tile.m));
  arguments.tiles_n = static_cast<uint32_t>(CeilDivide(size.n, tiling.tile.n));
  return tiling;
}

std::vector<std::string> NamesOf(const TiledVariants& variants) {
  std::vector<std::string> names;
  for (int number = 0; number < variants.Count(); ++number)
    names.push_back(NameOf(variants, number));
  return names;
}

absl::Status CheckTiledArchitecture(absl::string_view row, const DeviceProperties& device) {
  if (device.architecture >= kArchitectureAmpere) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat(row, " needs compute capability 8.0, ", device.name,
                                               " has ", device.compute_capability));
}

// 2048 on Hopper (989 TFLOP/s over 132 multiprocessors and 1.83 GHz), half of that on A100 (312,
// 108, 1.41).
int32_t TensorProductsPerCycle(const DeviceProperties& device) {
  return device.architecture >= kArchitectureHopper ? 2048 : 1024;
}

// 128 multiply-adds on architectures 86 and later, half of that on 80.
int32_t FloatProductsPerCycle(const DeviceProperties& device) {
  return device.architecture > kArchitectureAmpere ? 128 : 64;
}

}  // namespace warpcall::matmul
