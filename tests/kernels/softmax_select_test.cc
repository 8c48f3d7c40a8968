#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "kernels/softmax/softmax_cuda_cluster.h"
#include "kernels/softmax/softmax_cuda_column_cluster.h"
#include "kernels/softmax/softmax_cuda_column_ring.h"
#include "kernels/softmax/softmax_cuda_select.h"
#include "kernels/softmax/softmax_cuda_tile.h"
#include "proto/common/data_type.h"

namespace warpcall::softmax {
namespace {

constexpr int64_t kLengthMax = 40000;
constexpr size_t kElementSizes[] = {2, 4};
constexpr int kRegisterReadFile = 256 << 10;  // per multiprocessor, all architectures

RowShape ShapeOf(const RowPlan& plan) {
  switch (plan.method) {
    case RowMethod::kSubwarp:
      return {kSubwarpShapes[plan.shape].threads, kSubwarpShapes[plan.shape].elements * plan.width};
    case RowMethod::kWarp:
      return kWarpShapes[plan.shape];
    case RowMethod::kBlock:
      return BlockShapesOf(kVectorBytes / static_cast<size_t>(plan.width))[plan.shape];
    case RowMethod::kTwoPass:
      break;
  }
  return {kTwoPassThreads, 0};
}

template <typename Check>
void ForEachLength(const Check& check) {
  for (const size_t bytes : kElementSizes) {
    for (int64_t n = 1; n <= kLengthMax; ++n) {
      SCOPED_TRACE(::testing::Message() << n << " elements of " << bytes << " bytes");
      check(n, bytes);
      if (::testing::Test::HasFatalFailure()) return;
    }
  }
}

// The furthest that a row of n reaches from the vector in which it begins, by trying every row up
// to where starts repeat.
int64_t ReachOfRows(int64_t n, int64_t width) {
  int64_t reach = 0;
  for (int64_t row = 0; row < width; ++row) {
    const int64_t shift = row * n % width;
    reach = std::max(reach, (shift + n + width - 1) / width * width);
  }
  return reach;
}

TEST(SoftmaxSelectTest, EveryRowFitsItsVariantWhereverItStarts) {
  ForEachLength([](int64_t n, size_t bytes) {
    const RowPlan plan = PlanRow(n, bytes);
    if (plan.method == RowMethod::kTwoPass) return;
    ASSERT_LE(ReachOfRows(n, plan.width), ShapeOf(plan).capacity());
  });
}

TEST(SoftmaxSelectTest, AlignedPlansHaveNoVectorAcrossARowStart) {
  ForEachLength([](int64_t n, size_t bytes) {
    const RowPlan plan = PlanRow(n, bytes);
    ASSERT_LE(plan.width * bytes, static_cast<size_t>(kVectorBytes));
    ASSERT_EQ(plan.aligned, n % plan.width == 0);
    // Only short rows take narrower vectors.
    if (plan.method != RowMethod::kSubwarp) {
      ASSERT_EQ(plan.width, WidestVector(bytes));
    }
  });
}

TEST(SoftmaxSelectTest, ShortRowsTakeTheWidestVectorThatDividesThem) {
  for (int64_t n = 1; n <= kSubwarpElementsMax; ++n) {
    EXPECT_EQ(PlanRow(n, 2).width, std::gcd(n, 8)) << n;
    EXPECT_EQ(PlanRow(n, 4).width, std::gcd(n, 4)) << n;
  }
}

TEST(SoftmaxSelectTest, NoSmallerVariantWouldDo) {
  ForEachLength([](int64_t n, size_t bytes) {
    const RowPlan plan = PlanRow(n, bytes);
    if (plan.shape == 0) return;
    const RowPlan smaller{plan.method, plan.width, plan.shape - 1, plan.aligned};
    ASSERT_GT(ReachOfRows(n, plan.width), ShapeOf(smaller).capacity());
  });
}

TEST(SoftmaxSelectTest, LongerRowsNeverTakeAShorterMethod) {
  for (const size_t bytes : kElementSizes) {
    RowMethod last_of_multiples = RowMethod::kSubwarp;
    for (int64_t n = 1; n <= kLengthMax; ++n) {
      if (n % WidestVector(bytes) != 0) continue;
      const RowMethod method = PlanRow(n, bytes).method;
      EXPECT_GE(method, last_of_multiples) << n;
      last_of_multiples = method;
      EXPECT_GE(n, LengthsOf(method).shortest);
      EXPECT_LE(n, LengthsOf(method).longest);
    }
    EXPECT_EQ(last_of_multiples, RowMethod::kTwoPass);
  }
}

TEST(SoftmaxSelectTest, ThreadsHoldWhatTheirRegistersHaveRoomFor) {
  ForEachLength([](int64_t n, size_t bytes) {
    const RowShape shape = ShapeOf(PlanRow(n, bytes));
    ASSERT_LE(shape.elements, kHeldElementsMax);
    ASSERT_LE(shape.threads, 1024);
    // The rows of a block leave half of the registers to addresses and intermediate results.
    ASSERT_LE(shape.capacity() * static_cast<int>(sizeof(float)), kRegisterReadFile / 2);
  });
}

// 16 elements a thread take some 50 registers, 24 and 32 all of 64; the rest is the compiler's.
TEST(SoftmaxSelectTest, ResidentBlocksHaveRegistersAndAskForRowsThatFollowThem) {
  constexpr int kRegisters = 65536;
  constexpr int kResidentThreadsMax = 2048;
  for (const size_t bytes : kElementSizes) {
    for (const RowShape& shape : BlockShapesOf(bytes)) {
      SCOPED_TRACE(::testing::Message() << shape.threads << " threads x " << shape.elements);
      const int threads = shape.resident * shape.threads;
      EXPECT_LE(threads, kResidentThreadsMax);
      EXPECT_LE(threads * (shape.elements + 24), kRegisters);
      EXPECT_GE(threads, 1024);
      EXPECT_TRUE(shape.ahead == 0 || shape.ahead == shape.resident ||
                  shape.ahead == 2 * shape.resident);
      // A few large rows leave a multiprocessor idle while they meet.
      EXPECT_TRUE(shape.ahead > 0 || shape.resident >= 8);
    }
  }
}

TEST(SoftmaxSelectTest, SubwarpVariantsAreThoseThatSomeLengthTakes) {
  for (const size_t bytes : kElementSizes) {
    const SubwarpTable table = SubwarpVariantsFor(WidestVector(bytes));
    std::vector<bool> taken(table.count);
    for (int64_t n = 1; n <= kSubwarpElementsMax; ++n) {
      const RowPlan plan = PlanRow(n, bytes);
      ASSERT_TRUE(IsUsed({plan.width, plan.shape}, WidestVector(bytes))) << n;
      taken[table.NumberOf({plan.width, plan.shape})] = true;
    }
    EXPECT_EQ(std::count(taken.begin(), taken.end(), false), 0) << bytes;
  }
}

TEST(SoftmaxSelectTest, AVariantThatIsChosenFitsItsRows) {
  ForEachLength([](int64_t n, size_t bytes) {
    const RowPlan plan = PlanRow(n, bytes);
    if (plan.method != RowMethod::kWarp && plan.method != RowMethod::kBlock) return;
    ASSERT_TRUE(FitsWindow(n, ShapeOf(plan), plan.width, plan.aligned));
    ASSERT_EQ(WindowVariantOf(plan) / 2, plan.shape);
    ASSERT_EQ(WindowVariantOf(plan) % 2 == 1, plan.aligned);
  });
}

// Chunks that a variant of two_pass is asked for cover the row, and are as the variant says.
TEST(SoftmaxSelectTest, ChunksOfAVariantAreWhatItSays) {
  for (const size_t bytes : kElementSizes) {
    const int64_t step = TwoPassStepVectors(bytes);
    for (int number = 0; number < kTwoPassVariants; ++number) {
      const TwoPassVariant variant = TwoPassVariantAt(number);
      EXPECT_EQ(NumberOf(variant), number);
      int possible = 0;
      for (int64_t n = 1; n < 300000; n += n % 3 + n / 50 + 1) {
        SCOPED_TRACE(::testing::Message() << n << " of " << bytes << ", variant " << number);
        const ChunkPlan plan = ChunksFor(variant, n, bytes);
        if (plan.chunk_vectors == 0) continue;
        ++possible;
        const int64_t vectors = WindowVectorsMax(n, WidestVector(bytes));
        ASSERT_GE(plan.chunks_per_row * plan.chunk_vectors, vectors);
        ASSERT_LT((plan.chunks_per_row - 1) * plan.chunk_vectors, vectors);
        ASSERT_EQ(plan.chunks_per_row > 1, variant.chunked);
        ASSERT_EQ(plan.chunk_vectors % kTwoPassThreads, 0);
        ASSERT_LE(plan.chunk_vectors, kChunkVectorsMax);
        ASSERT_EQ(std::min(plan.chunk_vectors, vectors) > step, variant.several_steps);
        ASSERT_TRUE(!variant.aligned || n % WidestVector(bytes) == 0);
      }
      EXPECT_GT(possible, 10);
    }
  }
}

struct Threshold {
  int64_t n;
  size_t bytes;
  RowMethod method;
};

constexpr Threshold kThresholds[] = {
    {1, 2, RowMethod::kSubwarp},
    {127, 2, RowMethod::kSubwarp},
    {128, 2, RowMethod::kSubwarp},
    {129, 2, RowMethod::kWarp},
    {761, 2, RowMethod::kWarp},
    {762, 2, RowMethod::kWarp},
    {763, 2, RowMethod::kBlock},
    {764, 2, RowMethod::kWarp},
    {767, 2, RowMethod::kBlock},
    {768, 2, RowMethod::kWarp},
    {769, 2, RowMethod::kBlock},
    {32761, 2, RowMethod::kBlock},
    {32767, 2, RowMethod::kTwoPass},
    {32768, 2, RowMethod::kBlock},
    {32769, 2, RowMethod::kTwoPass},
    {1, 4, RowMethod::kSubwarp},
    {128, 4, RowMethod::kSubwarp},
    {129, 4, RowMethod::kWarp},
    {765, 4, RowMethod::kWarp},
    {766, 4, RowMethod::kWarp},
    {767, 4, RowMethod::kBlock},
    {768, 4, RowMethod::kWarp},
    {769, 4, RowMethod::kBlock},
    {32768, 4, RowMethod::kBlock},
    {32769, 4, RowMethod::kTwoPass},
    {int64_t{1} << 40, 4, RowMethod::kTwoPass},
    {int64_t{1} << 60, 2, RowMethod::kTwoPass},
};

TEST(SoftmaxSelectTest, MethodsChangeAtTheirThresholds) {
  for (const Threshold& threshold : kThresholds) {
    EXPECT_EQ(PlanRow(threshold.n, threshold.bytes).method, threshold.method)
        << threshold.n << " elements of " << threshold.bytes << " bytes";
  }
}

constexpr int32_t kH200Multiprocessors = 132;

TEST(SoftmaxSelectTest, ChunksCoverEveryRow) {
  for (const size_t bytes : kElementSizes) {
    for (const int64_t rows : {1, 3, 8, 100, 263, 264, 5000}) {
      for (const int64_t n : {int64_t{1}, int64_t{20481}, int64_t{32769}, int64_t{262144},
                              int64_t{4200001}, int64_t{1} << 34}) {
        SCOPED_TRACE(::testing::Message() << rows << " x " << n << " of " << bytes);
        const ChunkPlan plan = PlanChunks(rows, n, bytes, kH200Multiprocessors);
        const int64_t vectors = WindowVectorsMax(n, WidestVector(bytes));
        EXPECT_GE(plan.chunks_per_row * plan.chunk_vectors, vectors);
        EXPECT_LT((plan.chunks_per_row - 1) * plan.chunk_vectors, vectors);
        EXPECT_LE(plan.chunk_vectors, kChunkVectorsMax);
        EXPECT_EQ(plan.chunk_vectors % kTwoPassThreads, 0);
      }
    }
  }
}

TEST(SoftmaxSelectTest, FewLongRowsFillTheDevice) {
  const ChunkPlan few = PlanChunks(8, 262144, 2, kH200Multiprocessors);
  EXPECT_GE(8 * few.chunks_per_row, kH200Multiprocessors * 3 / 2);
  EXPECT_LE(8 * few.chunks_per_row, kH200Multiprocessors * 2);
  EXPECT_EQ(PlanChunks(2 * kH200Multiprocessors, 262144, 2, kH200Multiprocessors).chunks_per_row,
            1);
  EXPECT_EQ(PlanChunks(4096, 65536, 4, kH200Multiprocessors).chunks_per_row, 1);
}

TEST(SoftmaxSelectTest, TilesCoverEveryColumnOnceAndFitABlock) {
  for (const int vector_bytes : {2, 4, 16}) {
    for (const int threads_max : {256, 512}) {
      for (const int64_t outer : {1, 2, 3, 1000}) {
        for (const int64_t n : {1, 2, 37, 129, 4099, 1000000}) {
          for (const int64_t lanes : {1, 2, 3, 7, 8, 16, 33, 65, 257, 5000}) {
            SCOPED_TRACE(::testing::Message() << "[" << outer << ", " << n << ", " << lanes << "]");
            const ColumnTile tile = PlanColumns(
                {outer, n, lanes}, {threads_max, /*held=*/8, vector_bytes, kH200Multiprocessors});
            ASSERT_GE(tile.threads(), 1);
            ASSERT_LE(tile.threads(), threads_max);
            ASSERT_LE(tile.columns, lanes);
            ASSERT_GE(tile.columns * tile.across, lanes);
            ASSERT_LT(tile.columns * (tile.across - 1), lanes);
            ASSERT_LE(tile.slabs, outer);
            ASSERT_TRUE(tile.slabs == 1 || tile.columns == lanes);
            ASSERT_EQ(tile.blocks, tile.across * CeilDivide(outer, tile.slabs));
            ASSERT_LE(tile.slices, n);
          }
        }
      }
    }
  }
}

TEST(SoftmaxSelectTest, TilesReadWholeLinesAndShareALongAxis) {
  // 4-byte columns, many of them: a line of 32 across, the other threads along the axis.
  const TileLimits limits{512, 16, 4, kH200Multiprocessors};
  const ColumnTile wide = PlanColumns({1, 4096, 8192}, limits);
  EXPECT_EQ(wide.columns, 32);
  EXPECT_EQ(wide.slices, 16);
  // Few columns: a sector across, so that more blocks share the work.
  const ColumnTile few = PlanColumns({1, 4096, 256}, limits);
  EXPECT_EQ(few.columns, 8);
  EXPECT_EQ(few.slices, 64);
  // Small slabs, several to a block.
  const ColumnTile small = PlanColumns({1000000, 4, 3}, limits);
  EXPECT_EQ(small.columns, 3);
  EXPECT_EQ(small.slices, 1);
  EXPECT_EQ(small.slabs, 170);
}

TEST(SoftmaxClusterTest, BlocksCoverARowAndNoneIsLeftWithout) {
  for (const size_t bytes : kElementSizes) {
    const int width = WidestVector(bytes);
    for (int variant = 0; variant < kClusterVariants; ++variant) {
      const ClusterShape& shape = ClusterShapeOf(variant, bytes);
      int taken = 0;
      for (int64_t n = width; n <= ClusterLengthMax(bytes) + width; n += width * (1 + n / 3000)) {
        SCOPED_TRACE(::testing::Message() << n << " of " << bytes << ", variant " << variant);
        const ClusterPlan plan = PlanClusterAs(variant, n, bytes);
        EXPECT_EQ(plan.variant, variant);
        ASSERT_EQ(plan.blocks > 0, n <= int64_t{kClusterBlocksMax} * shape.capacity());
        if (plan.blocks == 0) continue;
        ++taken;
        const int64_t vectors = n / width;
        ASSERT_LE(plan.blocks, kClusterBlocksMax);
        ASSERT_GE(int64_t{plan.share} * plan.blocks, vectors);
        ASSERT_TRUE(plan.blocks == 2 || int64_t{plan.share} * (plan.blocks - 1) < vectors);
        ASSERT_GE(plan.blocks, 2);
        ASSERT_LE(plan.share * width, shape.capacity());
        ASSERT_EQ(plan.share * 16 % 128, 0);
      }
      EXPECT_GT(taken, 1000);
    }
  }
}

TEST(SoftmaxClusterTest, RowsThatAreNoWholeVectorsAreNotTaken) {
  for (int variant = 0; variant < kClusterVariants; ++variant) {
    for (const int64_t n : {int64_t{0}, int64_t{65535}, int64_t{65537}, int64_t{65540}})
      EXPECT_EQ(PlanClusterAs(variant, n, 2).blocks, 0) << n;
    EXPECT_EQ(PlanClusterAs(variant, 65538, 4).blocks, 0);
    EXPECT_GT(PlanClusterAs(variant, 65540, 4).blocks, 0);
    EXPECT_EQ(PlanClusterAs(variant, int64_t{1} << 60, 4).blocks, 0);
  }
}

struct Choice {
  int64_t rows;
  int64_t n;
  size_t bytes;
  int variant;
  int blocks;
};

// Each beside the rows or the columns at which the choice changes.
constexpr Choice kChoices[] = {
    // Few rows: four times 528 small blocks, then four times 132 or 264 large ones, then streamed.
    {422, 32776, 4, 0, 5},
    {423, 32776, 4, 2, 3},
    {132, 131072, 4, 0, 16},
    {105, 131076, 4, 1, 5},
    {106, 131076, 4, 3, 5},
    {8, 262144, 4, 1, 8},
    {66, 262144, 4, 1, 8},
    {67, 262144, 4, 3, 8},
    {8, 262144, 2, 1, 16},
    {66, 262144, 2, 1, 16},
    {67, 262144, 2, 3, 8},
    // Many rows: clusters of up to 8 small parts, then of large ones, up to 16.
    {100000, 32776, 2, 2, 3},
    {100000, 65536, 2, 2, 4},
    {100000, 65544, 2, 2, 5},
    {100000, 131072, 2, 2, 8},
    {100000, 131080, 2, 3, 5},
    {100000, 131072, 4, 2, 8},
    {100000, 131076, 4, 3, 5},
    {100000, 524288, 4, 3, 16},
    {100000, 524292, 4, 3, 0},
    {100000, 524288, 2, 3, 16},
    {100000, 524296, 2, 3, 0},
};

TEST(SoftmaxClusterTest, ChoicesChangeAtTheirThresholds) {
  for (const Choice& choice : kChoices) {
    SCOPED_TRACE(::testing::Message()
                 << choice.rows << " x " << choice.n << " of " << choice.bytes);
    const ClusterPlan plan = PlanCluster(choice.rows, choice.n, choice.bytes, kH200Multiprocessors);
    EXPECT_EQ(plan.variant, choice.variant);
    EXPECT_EQ(plan.blocks, choice.blocks);
  }
}

// A multiprocessor has 228 KiB of shared memory and 65536 registers; 64 elements leave half.
TEST(SoftmaxClusterTest, ResidentBlocksHaveRoom) {
  constexpr int kSharedBytes = 228 << 10;
  constexpr int kStaticBytes = 3 << 10;  // barriers, exchange, and the driver's share
  constexpr int kRegisters = 65536;
  for (const size_t bytes : kElementSizes) {
    for (int variant = 0; variant < kClusterVariants; ++variant) {
      const ClusterShape& shape = ClusterShapeOf(variant, bytes);
      EXPECT_LE(shape.resident * (shape.stages * shape.threads * 16 + kStaticBytes), kSharedBytes);
      EXPECT_LE(shape.resident * shape.threads * shape.elements, kRegisters / 2);
      EXPECT_EQ(shape.stages > 0, variant >= kFewRowsVariants);
      // The next part has room beside the one that is worked on.
      EXPECT_TRUE(shape.stages == 0 || shape.stages > shape.elements / WidestVector(bytes));
    }
  }
}

TEST(SoftmaxColumnClusterTest, BlocksHoldTheirShareAndTogetherTheAxis) {
  for (int variant = 0; variant < kColumnClusterVariants; ++variant) {
    int taken = 0;
    for (int64_t n = 1; n <= kColumnClusterAxisMax + 3; n += 1 + n / 97) {
      for (const int64_t lanes : {1, 2, 3, 8, 9, 512}) {
        const ColumnClusterPlan plan = PlanColumnClusterAs(variant, {3, n, lanes});
        ASSERT_EQ(plan.blocks > 0, n <= kClusterBlocksMax * ColumnClusterAxis(variant)) << n;
        if (plan.blocks == 0) continue;
        ++taken;
        ASSERT_GE(plan.blocks, 2);
        ASSERT_LE(plan.blocks, kClusterBlocksMax);
        ASSERT_LE(plan.share, ColumnClusterAxis(variant));
        ASSERT_GE(plan.share * plan.blocks, n);
        ASSERT_EQ(plan.across, (lanes - 1) / kColumnClusterLanes[variant] + 1);
      }
    }
    EXPECT_GT(taken, 1000);
  }
}

TEST(SoftmaxColumnClusterTest, TakesTheWidestThatHoldsTheAxis) {
  const auto variant_for = [](int64_t n) { return PlanColumnCluster({1, n, 512}).variant; };
  EXPECT_EQ(variant_for(513), 0);
  EXPECT_EQ(variant_for(8192), 0);
  EXPECT_EQ(variant_for(8193), 1);
  EXPECT_EQ(variant_for(16384), 1);
  EXPECT_EQ(variant_for(16385), 2);
  EXPECT_EQ(PlanColumnCluster({1, 32768, 512}).blocks, 16);
  EXPECT_EQ(PlanColumnCluster({1, 32769, 512}).blocks, 0);
}

TEST(SoftmaxColumnRingTest, BlocksCoverTheAxisInChunksThatTheRingHasRoomFor) {
  for (const size_t bytes : kElementSizes) {
    for (int variant = 0; variant < RingVariants(bytes); ++variant) {
      const int row_bytes = RingRowBytes(variant, bytes);
      const int64_t longest = RingAxisMax(variant, bytes);
      int taken = 0;
      for (int64_t n = 1; n <= longest + 3; n += n < longest - 3 ? 1 + n / 97 : 1) {
        SCOPED_TRACE(::testing::Message() << n << " of " << bytes << ", variant " << variant);
        const ColumnShape shape = {3, n, 1 + n % 13};
        const ColumnRingPlan plan = PlanColumnRingAs(variant, bytes, shape);
        ASSERT_EQ(plan.variant, variant);
        ASSERT_EQ(plan.blocks > 0, n <= longest);
        if (plan.blocks == 0) continue;
        ++taken;
        ASSERT_TRUE(plan.blocks == 2 || plan.blocks == 4 || plan.blocks == 8 || plan.blocks == 16);
        // While a panel is worked on there is room for a part of the next.
        ASSERT_GE(plan.chunks, 1);
        ASSERT_LT(plan.chunks, kRingStages);
        ASSERT_LE(plan.chunk_rows, RingChunkRows(row_bytes));
        // All of the axis, and no chunk in all of the shares too many.
        const int64_t chunks = int64_t{plan.blocks} * plan.chunks;
        ASSERT_GE(chunks * plan.chunk_rows, n);
        ASSERT_LT(chunks * (plan.chunk_rows - 1), n);
        ASSERT_GE(plan.across * row_bytes, shape.lanes * kVectorBytes);
        ASSERT_LT((plan.across - 1) * row_bytes, shape.lanes * kVectorBytes);
        ASSERT_EQ(plan.PanelsOf(shape), 3 * plan.across);
      }
      EXPECT_GT(taken, 500);
      EXPECT_EQ(PlanColumnRingAs(variant, bytes, {1, int64_t{1} << 60, 512}).blocks, 0);
    }
  }
}

// A box of a tensor map has up to 256 rows; a multiprocessor 227 KiB of shared memory for blocks.
TEST(SoftmaxColumnRingTest, ChunksAreBoxesAndTheRingHasRoom) {
  for (const size_t bytes : kElementSizes) {
    for (int variant = 0; variant < RingVariants(bytes); ++variant) {
      const int row_bytes = RingRowBytes(variant, bytes);
      EXPECT_EQ(RingChunkRows(row_bytes) * row_bytes, kRingChunkBytes);
      EXPECT_LE(RingChunkRows(row_bytes), 256);
      EXPECT_EQ(row_bytes % kSectorBytes, 0);
    }
  }
  EXPECT_LE(kRingSharedBytes, 227 << 10);
}

struct RingChoice {
  int64_t n;
  int64_t lanes;
  size_t bytes;
  ColumnRingPlan plan;
};

constexpr RingChoice kRingChoices[] = {
    // Columns for a few panels.
    {2048, 64, 2, {1, 2, 4, 256, 16}},
    {2049, 64, 2, {1, 4, 3, 171, 16}},
    {4096, 64, 2, {1, 4, 4, 256, 16}},
    {4097, 64, 2, {1, 8, 3, 171, 16}},
    {8192, 64, 2, {1, 8, 4, 256, 16}},
    {8193, 64, 2, {1, 16, 3, 171, 16}},
    {16384, 64, 2, {1, 16, 4, 256, 16}},
    {16385, 64, 2, {1, 16, 5, 205, 16}},
    {40960, 64, 2, {1, 16, 10, 256, 16}},
    {40961, 64, 2, {1, 0, 0, 0, 0}},
    {8193, 64, 4, {1, 16, 5, 103, 8}},
    {16384, 64, 4, {1, 16, 8, 128, 8}},
    {20480, 64, 4, {1, 16, 10, 128, 8}},
    {20481, 64, 4, {2, 16, 6, 214, 16}},
    {32768, 64, 4, {2, 16, 8, 256, 16}},
    {40960, 64, 4, {2, 16, 10, 256, 16}},
    {40961, 64, 4, {2, 0, 0, 0, 0}},
    // 8 clusters of 16 blocks: 127 and 128 panels of the widest.
    {8192, 127 * 8, 2, {1, 8, 4, 256, 254}},
    {8192, 128 * 8, 2, {0, 16, 4, 128, 128}},
    {4096, 127 * 16, 4, {1, 8, 4, 128, 254}},
    {4096, 128 * 16, 4, {0, 16, 4, 64, 128}},
    // 8 chunks of them for each block, and 9.
    {16384, 4096, 2, {0, 16, 8, 128, 512}},
    {16385, 4096, 2, {1, 16, 5, 205, 1024}},
    {8192, 4096, 4, {0, 16, 8, 64, 256}},
    {8193, 4096, 4, {1, 16, 5, 103, 512}},
};

TEST(SoftmaxColumnRingTest, ChoicesChangeAtTheirThresholds) {
  for (const RingChoice& choice : kRingChoices) {
    SCOPED_TRACE(::testing::Message()
                 << choice.n << " x " << choice.lanes << " of " << choice.bytes);
    const ColumnRingPlan plan =
        PlanColumnRing(choice.bytes, {1, choice.n, choice.lanes}, kH200Multiprocessors);
    EXPECT_EQ(plan.variant, choice.plan.variant);
    EXPECT_EQ(plan.blocks, choice.plan.blocks);
    EXPECT_EQ(plan.chunks, choice.plan.chunks);
    EXPECT_EQ(plan.chunk_rows, choice.plan.chunk_rows);
    EXPECT_EQ(plan.across, choice.plan.across);
  }
}

TEST(SoftmaxColumnRingTest, ClustersHaveTwoPanelsEach) {
  constexpr ColumnRingPlan kLarge = {0, 16, 4, 256, 1}, kSmall = {0, 4, 4, 256, 1};
  EXPECT_EQ(RingPanelsMin(kLarge, kH200Multiprocessors), 16);
  EXPECT_EQ(RingPanelsMin(kSmall, kH200Multiprocessors), 66);
  EXPECT_EQ(RingPanelsMin(kLarge, 8), 2);
}

}  // namespace
}  // namespace warpcall::softmax
