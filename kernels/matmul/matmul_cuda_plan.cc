#include "kernels/matmul/matmul_cuda_plan.h"

#include <cuda_runtime_api.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/cuda_status.h"

namespace warpcall::matmul {
namespace {

// The largest grid in x.
constexpr int64_t kBlocksMax = 0x7FFFFFFF;
constexpr int64_t kVectorBytes = 16;

BatchWalk WalkOf(const Shape& shape) {
  static_assert(kBatchRankMax == kRankMax - 2);
  BatchWalk walk = {};
  for (const BatchDim& dim : shape.batch) {
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

absl::Status FillWithZeros(const Problem& problem, const Operands& operands,
                           const LaunchContext& context) {
  // All bits zero is zero in every data type.
  return cuda::ToStatus(cudaMemsetAsync(operands.outputs[0], 0, problem.outputs[0].bytes(),
                                        static_cast<cudaStream_t>(context.stream)),
                        "writing zeros");
}

absl::StatusOr<Plan> MakePlan(const Arrangement& arrangement, const TileSet& set,
                              const DeviceProperties& device) {
  const Size size = SizeOf(arrangement.arguments);
  const auto fits = [&](const Tile& tile) {
    return static_cast<int64_t>(set.shared_bytes(tile)) <= device.shared_memory_per_block_bytes;
  };
  Plan plan{.arrangement = arrangement,
            .choice = ChooseTile(set.tiles, size,
                                 {.multiprocessors = std::max(1, device.multiprocessors),
                                  .products_per_cycle = set.products_per_cycle},
                                 fits),
            .tile = {},
            .blocks = 0,
            .shared_bytes = 0};
  if (plan.choice.tile < 0)
    return absl::UnimplementedError(
        absl::StrCat("the smallest tile takes ", set.shared_bytes(set.tiles.back()),
                     " bytes of shared memory; blocks of this device have ",
                     device.shared_memory_per_block_bytes));
  plan.tile = set.tiles[plan.choice.tile];
  plan.shared_bytes = set.shared_bytes(plan.tile);
  plan.blocks = BlocksOf(plan.tile, size, plan.choice.splits);
  if (plan.blocks > kBlocksMax)
    return absl::UnimplementedError(absl::StrCat("the outputs make ", plan.blocks, " tiles of ",
                                                 plan.tile.m, " x ", plan.tile.n, "; at most ",
                                                 kBlocksMax, " are allowed"));
  Arguments& arguments = plan.arrangement.arguments;
  arguments.splits = static_cast<uint32_t>(plan.choice.splits);
  arguments.split_depth = plan.choice.split_depth;
  arguments.tiles_m = static_cast<uint32_t>(CeilDivide(size.m, plan.tile.m));
  arguments.tiles_n = static_cast<uint32_t>(CeilDivide(size.n, plan.tile.n));
  return plan;
}

size_t PartialBytes(const absl::StatusOr<Plan>& plan) {
  return plan.ok() ? PartialBytes(SizeOf(plan->arrangement.arguments), plan->choice) : 0;
}

}  // namespace warpcall::matmul
