// The tiles of wgmma_tiled, their properties, and the tile that a problem takes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <set>
#include <string>

#include "kernels/matmul/matmul_cuda_pad.h"
#include "kernels/matmul/matmul_cuda_wgmma_select.h"

namespace warpcall::matmul {
namespace {

constexpr int32_t kMultiprocessors = 132;  // as on an H200

WgmmaSize Of(int64_t m, int64_t n, int64_t k, bool in_lines = true) {
  return {.size = {.m = m, .n = n, .k = k, .batches = 1},
          .a_in_lines = in_lines,
          .b_in_lines = in_lines};
}

// "128x256 by 2", "64x64 in 8"
std::string Chosen(const WgmmaSize& of) {
  const WgmmaTile& tile = kWgmmaTiles[ChooseWgmmaTile(of, kMultiprocessors)];
  std::string name = absl::StrCat(tile.m, "x", tile.n);
  if (tile.splits() > 1) return absl::StrCat(name, " in ", tile.splits());
  return absl::StrCat(name, " by ", tile.across());
}

TEST(WgmmaTiles, FitIntoSharedMemoryWithTheSumsOfOtherBlocks) {
  for (const WgmmaTile& tile : kWgmmaTiles) {
    EXPECT_LE(WgmmaSharedBytes(tile), 227u << 10);
    // Each block writes as many columns as the others, in whole eights.
    EXPECT_EQ(tile.n / 8 % tile.splits(), 0);
    const int columns = tile.n / tile.splits();
    if (tile.splits() > 1) {
      EXPECT_EQ(WgmmaOutBytes(tile), (tile.splits() - 1) * tile.m * columns * 4);
    }
    EXPECT_EQ(tile.splits() * tile.across(), tile.blocks);
    EXPECT_LE(tile.blocks, 8) << "what every device takes";
  }
}

// Measured on an H200: each is the fastest there, or within 3 % of it.
TEST(ChooseWgmmaTile, TakesWhatWasMeasuredToBeFastest) {
  EXPECT_EQ(Chosen(Of(8192, 8192, 8192)), "128x256 by 2");
  EXPECT_EQ(Chosen(Of(4096, 4096, 4096)), "128x256 by 2");
  EXPECT_EQ(Chosen(Of(12288, 2048, 10240)), "128x256 by 2");
  EXPECT_EQ(Chosen(Of(3072, 3072, 3072)), "128x192 by 2");
  EXPECT_EQ(Chosen(Of(2048, 2048, 2048)), "128x256 by 1");
  EXPECT_EQ(Chosen(Of(1536, 1536, 1536)), "128x192 by 1");
  EXPECT_EQ(Chosen(Of(1024, 1024, 1024)), "64x128 by 1");
  EXPECT_EQ(Chosen(Of(512, 512, 512)), "64x64 by 1");
  EXPECT_EQ(Chosen(Of(256, 4096, 4096)), "64x128 by 2");
  EXPECT_EQ(Chosen(Of(16, 4096, 4096)), "64x64 in 2");
  EXPECT_EQ(Chosen(Of(384, 384, 8192)), "64x128 in 4");
  EXPECT_EQ(Chosen(Of(16, 2048, 2048)), "64x128 in 4");
  EXPECT_EQ(Chosen(Of(17, 200, 1000)), "64x64 in 8");
  EXPECT_EQ(Chosen(Of(64, 8192, 8192)), "64x64 by 1");
  EXPECT_EQ(Chosen(Of(128, 128, 16384)), "64x64 in 8");
}

// Rows that straddle lines cost L2 more; pairs copy fewer of them.
TEST(ChooseWgmmaTile, SharesCopiesWhereRowsAreNotInLines) {
  EXPECT_EQ(Chosen(Of(1000, 3000, 2000, true)), "128x192 by 1");
  EXPECT_EQ(Chosen(Of(1000, 3000, 2000, false)), "128x192 by 2");
}

// A tile that no size takes would only be compiled.
TEST(ChooseWgmmaTile, TakesEveryTileForSomeSize) {
  std::set<int> chosen;
  for (int64_t m = 16; m <= 8192; m += m / 2)
    for (int64_t n = 64; n <= 8192; n += n / 2)
      for (int64_t k = 64; k <= 1 << 15; k *= 2)
        for (const bool in_lines : {false, true})
          chosen.insert(ChooseWgmmaTile(Of(m, n, k, in_lines), kMultiprocessors));
  EXPECT_EQ(chosen.size(), size_t{kWgmmaTileCount});
}

TEST(ChooseWgmmaTile, CutsSumsOnlyWhereAllClustersRunAtOnceAndEachBlockHasAStep) {
  for (const int64_t m : {1, 64, 65, 500, 1000, 5000}) {
    for (const int64_t n : {8, 64, 72, 512, 4096}) {
      for (const int64_t k : {1, 64, 65, 449, 4096, 1 << 20}) {
        const WgmmaSize of = Of(m, n, k);
        const WgmmaTile& tile = kWgmmaTiles[ChooseWgmmaTile(of, kMultiprocessors)];
        if (tile.splits() == 1) continue;
        EXPECT_GE(CeilDivide(k, 64), tile.splits());
        EXPECT_LE(WgmmaWork(tile, of.size) * tile.blocks, tile.blocks == 2 ? 132 : 120);
      }
    }
  }
}

TEST(WgmmaCanSplit, NeedsAStepOfKForEachBlock) {
  for (const WgmmaTile& tile : kWgmmaTiles) {
    EXPECT_TRUE(WgmmaCanSplit(tile, (tile.splits() - 1) * kWgmmaDepth + 1));
    if (tile.splits() > 1) {
      EXPECT_FALSE(WgmmaCanSplit(tile, (tile.splits() - 1) * kWgmmaDepth));
    }
  }
}

TEST(WgmmaWork, CountsWholeClustersAndSaturates) {
  const Size size{.m = 300, .n = 520, .k = 8, .batches = 3};
  EXPECT_EQ(WgmmaWork({128, 256, 4, 1, WgmmaCluster::kColumns}, size), 3 * 3 * 3);
  EXPECT_EQ(WgmmaWork({128, 256, 4, 2, WgmmaCluster::kColumns}, size), 2 * 3 * 3);
  EXPECT_EQ(WgmmaWork({128, 256, 4, 2, WgmmaCluster::kTile}, size), 3 * 3 * 3);
  const int64_t huge = int64_t{1} << 40;
  EXPECT_EQ(WgmmaWork(kWgmmaTiles[0], {.m = huge, .n = huge, .k = 1, .batches = huge}),
            std::numeric_limits<int64_t>::max());
}

TEST(WgmmaClustersAtOnce, IsOneAtLeast) {
  for (const WgmmaTile& tile : kWgmmaTiles) {
    EXPECT_GE(WgmmaClustersAtOnce(tile, 1), 1);
    EXPECT_LE(WgmmaClustersAtOnce(tile, kMultiprocessors) * tile.blocks, kMultiprocessors);
  }
}

TEST(WgmmaVariants, NumbersAndVariantsAreOneToOne) {
  for (const WgmmaLayouts layouts :
       {WgmmaLayouts::kAll, WgmmaLayouts::kBAlongK, WgmmaLayouts::kAlongK}) {
    const WgmmaVariants variants{layouts};
    const bool all = layouts == WgmmaLayouts::kAll;
    const bool along_k = layouts == WgmmaLayouts::kAlongK;
    EXPECT_EQ(variants.Count(), kWgmmaTileCount * (all ? 4 : along_k ? 1 : 2));
    std::set<std::string> names;
    for (int number = 0; number < variants.Count(); ++number) {
      EXPECT_EQ(variants.NumberOf(variants.At(number)), number);
      EXPECT_TRUE(names.insert(NameOf(variants, number)).second) << NameOf(variants, number);
      if (along_k) {
        EXPECT_EQ(variants.At(number).a, Adjacent::kDepth);
      }
      if (!all) {
        EXPECT_EQ(variants.At(number).b, Adjacent::kDepth);
      }
    }
  }
}

TEST(PaddedRows, BeginAtLinesOrWhereTheyAreShortAtVectorsAndSaturate) {
  EXPECT_EQ((PaddedRows{3, 1, 2}).stride(), 8);
  EXPECT_EQ((PaddedRows{3, 65, 2}).stride(), 72);
  EXPECT_EQ((PaddedRows{3, 511, 2}).stride(), 512);
  EXPECT_EQ((PaddedRows{3, 513, 2}).stride(), 576);
  EXPECT_EQ((PaddedRows{3, 4095, 2}).stride(), 4096);
  EXPECT_EQ((PaddedRows{3, 513, 2}).bytes(), 3u * 576 * 2);
  EXPECT_EQ((PaddedRows{3, 255, 4}).stride(), 256);
  EXPECT_EQ((PaddedRows{3, 257, 4}).stride(), 288);
  const int64_t huge = int64_t{1} << 40;
  EXPECT_EQ((PaddedRows{huge, huge, 2}).bytes(),
            static_cast<size_t>(std::numeric_limits<int64_t>::max()));
}

}  // namespace
}  // namespace warpcall::matmul
