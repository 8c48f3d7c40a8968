#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

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

constexpr int32_t kMultiprocessors = 132;

TEST(SoftmaxSelectTest, ChunksCoverEveryRow) {
  for (const size_t bytes : kElementSizes) {
    for (const int64_t rows : {1, 3, 8, 100, 263, 264, 5000}) {
      for (const int64_t n : {int64_t{1}, int64_t{20481}, int64_t{32769}, int64_t{262144},
                              int64_t{4200001}, int64_t{1} << 34}) {
        SCOPED_TRACE(::testing::Message() << rows << " x " << n << " of " << bytes);
        const ChunkPlan plan = PlanChunks(rows, n, bytes, kMultiprocessors);
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
  const ChunkPlan few = PlanChunks(8, 262144, 2, kMultiprocessors);
  EXPECT_GE(8 * few.chunks_per_row, kMultiprocessors * 3 / 2);
  EXPECT_LE(8 * few.chunks_per_row, kMultiprocessors * 2);
  EXPECT_EQ(PlanChunks(2 * kMultiprocessors, 262144, 2, kMultiprocessors).chunks_per_row, 1);
  EXPECT_EQ(PlanChunks(4096, 65536, 4, kMultiprocessors).chunks_per_row, 1);
}

TEST(SoftmaxSelectTest, TilesCoverEveryColumnOnceAndFitABlock) {
  for (const int vector_bytes : {2, 4, 16}) {
    for (const int threads_max : {256, 512}) {
      for (const int64_t outer : {1, 2, 3, 1000}) {
        for (const int64_t n : {1, 2, 37, 129, 4099, 1000000}) {
          for (const int64_t lanes : {1, 2, 3, 7, 8, 16, 33, 65, 257, 5000}) {
            SCOPED_TRACE(::testing::Message() << "[" << outer << ", " << n << ", " << lanes << "]");
            const ColumnTile tile = PlanColumns(
                {outer, n, lanes}, {threads_max, /*held=*/8, vector_bytes, kMultiprocessors});
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
  const TileLimits limits{512, 16, 4, kMultiprocessors};
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

}  // namespace
}  // namespace warpcall::softmax
