#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kernels/matmul/matmul_cuda_select.h"
#include "kernels/matmul/matmul_cuda_variants.h"

namespace warpcall::matmul {
namespace {

constexpr Chip kH200{.multiprocessors = 132, .products_per_cycle = 2048};
constexpr Chip kH200Float{.multiprocessors = 132, .products_per_cycle = 128};
constexpr auto kAllFit = [](const Tile&) { return true; };

const std::vector<std::span<const Tile>>& Tables() {
  static const auto& tables = *new std::vector<std::span<const Tile>>{
      kMmaTiles, kMmaElementTiles, kRegisterTiles, kRegisterNarrowTiles};
  return tables;
}

Size Square(int64_t n) { return {.m = n, .n = n, .k = n, .batches = 1}; }

TEST(Cut, CoversEveryTermOnceAndLeavesNoRunEmpty) {
  for (std::span<const Tile> tiles : Tables()) {
    for (const Tile& tile : tiles) {
      for (int64_t k = 1; k < 2100; k += 13) {
        for (int wanted = 1; wanted <= 32; ++wanted) {
          const Choice cut = Cut(tile, {.m = 1, .n = 1, .k = k, .batches = 1}, wanted);
          ASSERT_LE(cut.splits, wanted);
          ASSERT_GE(cut.splits, 1);
          ASSERT_EQ(cut.split_depth % tile.depth, 0);
          ASSERT_GE(cut.splits * cut.split_depth, k);
          ASSERT_LT((cut.splits - 1) * cut.split_depth, k);
        }
      }
    }
  }
}

TEST(ChooseTile, TakesTheLargestTileWhereItFillsTheDevice) {
  for (const int64_t n : {4096, 8192}) {
    const Choice half = ChooseTile(kMmaTiles, Square(n), kH200, kAllFit);
    EXPECT_EQ(kMmaTiles[half.tile].m * kMmaTiles[half.tile].n, 128 * 256) << n;
    EXPECT_EQ(half.splits, 1) << n;
    const Choice wide = ChooseTile(kRegisterTiles, Square(n), kH200Float, kAllFit);
    EXPECT_EQ(kRegisterTiles[wide.tile].m * kRegisterTiles[wide.tile].n, 128 * 256) << n;
    EXPECT_EQ(wide.splits, 1) << n;
  }
}

TEST(ChooseTile, KeepsMostMultiprocessorsBusyWhereTilesAreFew) {
  for (const int64_t n : {512, 1024, 2048}) {
    const Choice half = ChooseTile(kMmaTiles, Square(n), kH200, kAllFit);
    EXPECT_GE(BlocksOf(kMmaTiles[half.tile], Square(n), half.splits), 64) << n;
    const Choice wide = ChooseTile(kRegisterTiles, Square(n), kH200Float, kAllFit);
    EXPECT_GE(BlocksOf(kRegisterTiles[wide.tile], Square(n), wide.splits), 100) << n;
  }
}

TEST(ChooseTile, CutsLongSumsOfFewOutputs) {
  const Size size{.m = 16, .n = 64, .k = 1 << 20, .batches = 1};
  EXPECT_GT(ChooseTile(kMmaTiles, size, kH200, kAllFit).splits, 8);
  EXPECT_GT(ChooseTile(kRegisterTiles, size, kH200Float, kAllFit).splits, 8);
}

TEST(ChooseTile, DoesNotCutShortSums) {
  const Size size{.m = 16, .n = 64, .k = 64, .batches = 1};
  EXPECT_EQ(ChooseTile(kMmaTiles, size, kH200, kAllFit).splits, 1);
  EXPECT_EQ(ChooseTile(kRegisterTiles, size, kH200Float, kAllFit).splits, 1);
}

// A tile that no size takes would only be compiled.
TEST(ChooseTile, TakesEveryTileOfEachTableForSomeSize) {
  for (std::span<const Tile> tiles : Tables()) {
    const bool is_mma =
        tiles.data() == std::begin(kMmaTiles) || tiles.data() == std::begin(kMmaElementTiles);
    std::set<int> whole, cut;
    for (int64_t m = 64; m <= 8192; m *= 2) {
      for (int64_t n = 64; n <= 8192; n += n / 2) {
        for (int64_t k = 64; k <= 1 << 16; k *= 4) {
          const Size size{.m = m, .n = n, .k = k, .batches = 1};
          const Choice choice = ChooseTile(tiles, size, is_mma ? kH200 : kH200Float, kAllFit);
          (choice.splits > 1 ? cut : whole).insert(choice.tile);
        }
      }
    }
    EXPECT_EQ(whole.size(), tiles.size());
    EXPECT_EQ(cut.size(), tiles.size());
  }
}

// This bounds the workspace by the device's capacity: 4 bytes per output in flight.
TEST(ChooseTile, CutsOnlyWhileAllBlocksRunAtOnce) {
  const int64_t sizes[] = {1, 16, 63, 64, 65, 129, 500, 1000, 3000};
  for (std::span<const Tile> tiles : Tables()) {
    for (const int64_t m : sizes) {
      for (const int64_t n : sizes) {
        for (const int64_t k : {1, 100, 5000, 1000000}) {
          const Size size{.m = m, .n = n, .k = k, .batches = 1};
          const Choice choice = ChooseTile(tiles, size, kH200, kAllFit);
          ASSERT_GE(choice.tile, 0);
          if (choice.splits == 1) continue;
          const Tile& tile = tiles[choice.tile];
          EXPECT_LE(BlocksOf(tile, size, choice.splits), kH200.multiprocessors * tile.resident);
          EXPECT_EQ(PartialBytes(size, choice), size_t{4} * m * n * choice.splits);
          EXPECT_LE(PartialBytes(size, choice), size_t{64} << 20);
        }
      }
    }
  }
}

TEST(ChooseTile, TakesOnlyWhatFits) {
  const auto small = [](const Tile& tile) { return tile.m * tile.n <= 64 * 64; };
  const Choice choice = ChooseTile(kMmaTiles, Square(4096), kH200, small);
  ASSERT_GE(choice.tile, 0);
  EXPECT_TRUE(small(kMmaTiles[choice.tile]));
  const auto nothing = [](const Tile&) { return false; };
  EXPECT_EQ(ChooseTile(kMmaTiles, Square(4096), kH200, nothing).tile, -1);
}

TEST(CutTile, GivesTwoRunsOrMoreWhereKMakesTwoSteps) {
  for (std::span<const Tile> tiles : Tables()) {
    for (const Tile& tile : tiles) {
      for (const int64_t k : {1, tile.depth, tile.depth + 1, 1000, 100000}) {
        const Choice cut = CutTile(tile, {.m = 3000, .n = 3000, .k = k, .batches = 2}, kH200);
        EXPECT_EQ(cut.splits > 1, k > tile.depth) << k;
        EXPECT_LE(cut.splits, kSplitsMax);
        EXPECT_GE(cut.splits * cut.split_depth, k);
        EXPECT_LT((cut.splits - 1) * cut.split_depth, k);
      }
    }
  }
}

TEST(TiledVariants, NumbersAndVariantsAreOneToOne) {
  // linear's variants.
  constexpr TiledVariants kAlongK{kMmaTiles, kMmaElementTiles, 1, /*along_k=*/true};
  for (const TiledVariants& variants :
       {kMmaVariants, kRegisterVariants, kRegisterNarrowVariants, kAlongK}) {
    std::set<std::string> names;
    for (int number = 0; number < variants.Count(); ++number) {
      const TiledVariant variant = variants.At(number);
      EXPECT_EQ(variants.NumberOf(variant), number);
      ASSERT_LT(variant.tile, static_cast<int>(variants.TilesFor(variant.in_vectors).size()));
      EXPECT_TRUE(names.insert(NameOf(variants, number)).second) << NameOf(variants, number);
    }
  }
  EXPECT_EQ(kMmaVariants.Count(), (4 + 2) * 4 * 2);
  EXPECT_EQ(kRegisterVariants.Count(), (3 * 4 + 3 * 3) * 2);
  EXPECT_EQ(kRegisterNarrowVariants.Count(), 2 * 4 * 2);
  EXPECT_EQ(kAlongK.Count(), (4 + 2) * 2);
  for (int number = 0; number < kAlongK.Count(); ++number) {
    EXPECT_EQ(kAlongK.At(number).a, Adjacent::kDepth);
    EXPECT_EQ(kAlongK.At(number).b, Adjacent::kDepth);
  }
}

TEST(DotVariants, NumbersAndVariantsAreOneToOne) {
  std::set<std::string> names;
  for (int number = 0; number < kDotVariants; ++number) {
    EXPECT_EQ(NumberOf(DotVariantAt(number)), number);
    EXPECT_TRUE(names.insert(NameOf(DotVariantAt(number))).second);
  }
}

TEST(DotSplits, FillTheDeviceWhereSumsAreLongEnough) {
  EXPECT_EQ(DotSplits(1, 1023, 132), 1);
  EXPECT_EQ(DotSplits(1, 2048, 132), 2);
  EXPECT_EQ(DotSplits(1, 1 << 20, 132), 264);
  EXPECT_EQ(DotSplits(64, 1 << 20, 132), 5);
  EXPECT_EQ(DotSplits(263, 1 << 20, 132), 2);
  EXPECT_EQ(DotSplits(264, 1 << 20, 132), 1);
  EXPECT_EQ(DotSplits(std::numeric_limits<int64_t>::max(), 1 << 20, 132), 1);
}

TEST(BlocksOf, SaturatesInsteadOfWrapping) {
  const int64_t huge = int64_t{1} << 40;
  const Size size{.m = huge, .n = huge, .k = 1, .batches = huge};
  EXPECT_EQ(BlocksOf(kMmaTiles[0], size, 1), std::numeric_limits<int64_t>::max());
  EXPECT_EQ(PartialBytes(size, {.tile = 0, .splits = 2, .split_depth = 64}),
            static_cast<size_t>(std::numeric_limits<int64_t>::max()));
  EXPECT_EQ(ChooseTile(kMmaTiles, size, kH200, kAllFit).splits, 1);
}

TEST(PlaceOf, VisitsEveryTileOnce) {
  for (const uint32_t tiles_m : {1u, 2u, 7u, 8u, 9u, 16u, 33u}) {
    for (const uint32_t tiles_n : {1u, 2u, 5u, 8u, 40u}) {
      std::set<std::pair<uint32_t, uint32_t>> seen;
      for (uint32_t i = 0; i < tiles_m * tiles_n; ++i) {
        const TilePlace place = PlaceOf(i, tiles_m, tiles_n);
        ASSERT_LT(place.m, tiles_m);
        ASSERT_LT(place.n, tiles_n);
        EXPECT_TRUE(seen.emplace(place.m, place.n).second);
      }
    }
  }
}

TEST(PlaceOf, StaysInGroupsOfRows) {
  uint32_t n_max = 0;
  for (uint32_t i = 0; i < 132; ++i) {
    const TilePlace place = PlaceOf(i, 32, 32);
    EXPECT_LT(place.m, 8u);
    n_max = std::max(n_max, place.n);
  }
  EXPECT_EQ(n_max, 16u);
}

// The largest grids there can be must not wrap 32 bits on the way.
TEST(PlaceOf, HoldsForLongThinGrids) {
  constexpr uint32_t kMax = 0x7FFFFFFF;
  EXPECT_EQ(PlaceOf(kMax - 1, 1, kMax).n, kMax - 1);
  EXPECT_EQ(PlaceOf(kMax - 1, kMax, 1).m, kMax - 1);
  EXPECT_EQ(PlaceOf(kMax - 2, 2, kMax / 2).n, kMax / 2 - 1);
}

}  // namespace
}  // namespace warpcall::matmul
