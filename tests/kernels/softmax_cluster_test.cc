#include <gtest/gtest.h>

#include <cstdint>

#include "kernels/softmax/softmax_cuda_cluster.h"
#include "kernels/softmax/softmax_cuda_column_cluster.h"
#include "kernels/softmax/softmax_cuda_column_ring.h"

namespace warpcall::softmax {
namespace {

constexpr size_t kElementSizes[] = {2, 4};
constexpr int32_t kMultiprocessors = 132;

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
    const ClusterPlan plan = PlanCluster(choice.rows, choice.n, choice.bytes, kMultiprocessors);
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
  size_t bytes;
  ColumnRingPlan plan;
};

constexpr RingChoice kRingChoices[] = {
    {2048, 2, {0, 2, 4, 256, 16}},    {2049, 2, {0, 4, 3, 171, 16}},
    {4096, 2, {0, 4, 4, 256, 16}},    {4097, 2, {0, 8, 3, 171, 16}},
    {8192, 2, {0, 8, 4, 256, 16}},    {8193, 2, {0, 16, 3, 171, 16}},
    {16384, 2, {0, 16, 4, 256, 16}},  {16385, 2, {0, 16, 5, 205, 16}},
    {40960, 2, {0, 16, 10, 256, 16}}, {40961, 2, {0, 0, 0, 0, 0}},
    {8193, 4, {0, 16, 5, 103, 8}},    {16384, 4, {0, 16, 8, 128, 8}},
    {20480, 4, {0, 16, 10, 128, 8}},  {20481, 4, {1, 16, 6, 214, 16}},
    {32768, 4, {1, 16, 8, 256, 16}},  {40960, 4, {1, 16, 10, 256, 16}},
    {40961, 4, {1, 0, 0, 0, 0}},
};

TEST(SoftmaxColumnRingTest, ChoicesChangeAtTheirThresholds) {
  for (const RingChoice& choice : kRingChoices) {
    SCOPED_TRACE(::testing::Message() << choice.n << " of " << choice.bytes);
    const ColumnRingPlan plan = PlanColumnRing(choice.bytes, {1, choice.n, 64});
    EXPECT_EQ(plan.variant, choice.plan.variant);
    EXPECT_EQ(plan.blocks, choice.plan.blocks);
    EXPECT_EQ(plan.chunks, choice.plan.chunks);
    EXPECT_EQ(plan.chunk_rows, choice.plan.chunk_rows);
    EXPECT_EQ(plan.across, choice.plan.across);
  }
}

TEST(SoftmaxColumnRingTest, ClustersHaveTwoPanelsEach) {
  constexpr ColumnRingPlan kLarge = {0, 16, 4, 256, 1}, kSmall = {0, 4, 4, 256, 1};
  EXPECT_EQ(RingPanelsMin(kLarge, kMultiprocessors), 16);
  EXPECT_EQ(RingPanelsMin(kSmall, kMultiprocessors), 66);
  EXPECT_EQ(RingPanelsMin(kLarge, 8), 2);
}

}  // namespace
}  // namespace warpcall::softmax
