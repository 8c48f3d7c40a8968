#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kernels/matmul/matmul_cuda_layout.h"
#include "kernels/matmul/matmul_cuda_pad.h"
#include "kernels/matmul/matmul_cuda_select.h"
#include "kernels/matmul/matmul_cuda_variants.h"
#include "kernels/matmul/matmul_cuda_wgmma_select.h"
#include "proto/common/check.h"

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
  constexpr TiledVariants kTurned{kRegisterTiles, {}, 1, /*along_k=*/true, /*turned=*/true};
  for (const TiledVariants& variants :
       {kMmaVariants, kRegisterVariants, kRegisterNarrowVariants, kAlongK, kTurned}) {
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
  EXPECT_EQ(kTurned.Count(), 3 * 2 * 2);
  for (int number = 0; number < kTurned.Count(); ++number)
    EXPECT_EQ(kTurned.At(number).a, kTurned.At(number).b);
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

// Places of elements in shared memory, against the PTX ISA on ldmatrix and mma.m16n8k16.

// One operand's tile in a model of shared memory; the element of outer index i and term p has the
// value i x kDepth + p.
template <Adjacent kAdjacent, int kOuter, int kDepth>
class TileModel {
 public:
  using Layout = OperandTile<kAdjacent, kOuter, kDepth>;

  TileModel() : elements_(Layout::kBytes / sizeof(uint16_t), 0xFFFF) {
    for (int i = 0; i < kOuter; ++i) {
      for (int p = 0; p < kDepth; ++p) {
        const int row = kAdjacent == Adjacent::kDepth ? i : p;
        const int column = kAdjacent == Adjacent::kDepth ? p : i;
        const uint32_t offset = ChunkOffset<Layout::kRowChunks>(row, column / kChunkElements) / 2 +
                                column % kChunkElements;
        EXPECT_EQ(elements_.at(offset), 0xFFFF) << "two elements in one place";
        elements_[offset] = static_cast<uint16_t>(i * kDepth + p);
      }
    }
  }

  // Registers of two elements that ldmatrix.x4 leaves in `lane`.
  std::array<std::array<int, 2>, 4> LoadMatrices(const std::array<uint32_t, 32>& addresses,
                                                 int lane) const {
    std::array<std::array<int, 2>, 4> registers;
    for (int matrix = 0; matrix < 4; ++matrix) {
      for (int half = 0; half < 2; ++half) {
        const bool transpose = kAdjacent == Adjacent::kOuter;
        const int row = transpose ? lane % 4 * 2 + half : lane / 4;
        const int column = transpose ? lane / 4 : lane % 4 * 2 + half;
        registers[matrix][half] = elements_.at(addresses[8 * matrix + row] / 2 + column);
      }
    }
    return registers;
  }

 private:
  std::vector<uint16_t> elements_;
};

template <Side kSide, Adjacent kAdjacent, int kOuter, int kDepth, int kWarpOuter>
void CheckFragments() {
  const TileModel<kAdjacent, kOuter, kDepth> tile;
  constexpr int kRowChunks = OperandTile<kAdjacent, kOuter, kDepth>::kRowChunks;
  for (int warp = 0; warp < kOuter; warp += kWarpOuter) {
    for (int index = 0; index < kWarpOuter / kFragmentOuter; ++index) {
      for (int step = 0; step < kDepth / kFragmentDepth; ++step) {
        std::array<uint32_t, 32> addresses;
        for (int lane = 0; lane < 32; ++lane)
          addresses[lane] = FragmentOffset<kAdjacent, kRowChunks>(
              LaneAddressOf<kSide, kAdjacent, kRowChunks>(lane, warp), index, step);
        for (int matrix = 0; matrix < 4; ++matrix) {
          std::set<uint32_t> banks;  // groups of four
          for (int row = 0; row < 8; ++row)
            banks.insert(addresses[8 * matrix + row] / kChunkBytes % 8);
          EXPECT_EQ(banks.size(), 8u) << "bank conflict";
        }
        for (int lane = 0; lane < 32; ++lane) {
          const auto registers = tile.LoadMatrices(addresses, lane);
          for (int r = 0; r < 4; ++r) {
            const bool high_outer = kSide == Side::kA ? r % 2 == 1 : r / 2 == 1;
            const bool high_depth = kSide == Side::kA ? r / 2 == 1 : r % 2 == 1;
            for (int half = 0; half < 2; ++half) {
              const int i = warp + index * kFragmentOuter + lane / 4 + (high_outer ? 8 : 0);
              const int p = step * kFragmentDepth + lane % 4 * 2 + half + (high_depth ? 8 : 0);
              ASSERT_EQ(registers[r][half], i * kDepth + p);
            }
          }
        }
      }
    }
  }
}

template <int kOuter, int kDepth, int kWarpOuter>
void CheckOperands() {
  CheckFragments<Side::kA, Adjacent::kDepth, kOuter, kDepth, kWarpOuter>();
  CheckFragments<Side::kA, Adjacent::kOuter, kOuter, kDepth, kWarpOuter>();
  CheckFragments<Side::kB, Adjacent::kDepth, kOuter, kDepth, kWarpOuter>();
  CheckFragments<Side::kB, Adjacent::kOuter, kOuter, kDepth, kWarpOuter>();
}

TEST(Fragments, HoldWhatMmaExpectsWithoutBankConflicts) {
  CheckOperands<256, 64, 64>();
  CheckOperands<128, 64, 64>();
  CheckOperands<64, 64, 32>();
  CheckOperands<128, 32, 32>();
  CheckOperands<128, 32, 64>();
  CheckOperands<64, 32, 32>();
}

// A quarter of a warp stores 16 bytes each at a time: 8 neighbouring chunks of a row, or of two
// rows where a row has 4.
template <int kRowChunks>
void CheckRows() {
  for (uint32_t first = 0; first < 64 * kRowChunks; first += 8) {
    std::set<uint32_t> banks;
    for (uint32_t i = first; i < first + 8; ++i)
      banks.insert(ChunkOffset<kRowChunks>(i / kRowChunks, i % kRowChunks) / kChunkBytes % 8);
    EXPECT_EQ(banks.size(), 8u) << first;
  }
}

TEST(ChunkOffset, SpreadsNeighboursInARowOverAllBanks) {
  CheckRows<4>();
  CheckRows<8>();
  CheckRows<16>();
  CheckRows<32>();
}

// Accesses of `bytes` each touch so many different groups of banks.
void CheckBanks(const std::vector<uint32_t>& offsets, uint32_t bytes, size_t distinct) {
  std::set<uint32_t> banks;
  for (const uint32_t offset : offsets) banks.insert(offset % 128 / bytes);
  EXPECT_EQ(banks.size(), distinct) << offsets[0];
}

// 16 lanes store 8 bytes at a time, 8 lanes load 16.
template <int kColumns>
void CheckFloats(uint32_t rows, size_t distinct_loads) {
  std::set<uint32_t> offsets;
  for (uint32_t row = 0; row < rows; ++row)
    for (uint32_t column = 0; column < kColumns; ++column)
      offsets.insert(FloatOffset<kColumns>(row, column));
  EXPECT_EQ(offsets.size(), rows * kColumns);
  EXPECT_EQ(*offsets.rbegin(), rows * kColumns * 4 - 4);
  for (uint32_t row = 0; row < rows; row += 4) {
    for (uint32_t first = 0; first < kColumns; first += 8) {
      std::vector<uint32_t> stored;
      for (uint32_t lane = 0; lane < 16; ++lane)
        stored.push_back(FloatOffset<kColumns>(row + lane / 4, first + lane % 4 * 2));
      CheckBanks(stored, 8, 16);
    }
  }
  constexpr uint32_t kAcross = kColumns / 8;
  for (uint32_t row = 0; row < rows; row += 8 / kAcross) {
    for (const uint32_t half : {0, 4}) {
      std::vector<uint32_t> loaded;
      for (uint32_t lane = 0; lane < 8; ++lane)
        loaded.push_back(FloatOffset<kColumns>(row + lane / kAcross, lane % kAcross * 8 + half));
      CheckBanks(loaded, 16, distinct_loads);
    }
  }
}

TEST(FloatOffset, GivesEachSumItsPlaceAndSpreadsWhatLanesTouch) {
  CheckFloats<64>(64, 8);
  CheckFloats<32>(32, 4);
}

TEST(LayoutDeathTest, PlacesLieInTheirRows) {
  if (!WARPCALL_DCHECK_IS_ON) GTEST_SKIP() << "needs WARPCALL_DCHECK";
  EXPECT_DEATH(ChunkOffset<8>(0, 8), "chunk < kRowChunks");
  EXPECT_DEATH(FloatOffset<32>(0, 32), "column < kColumns");
  EXPECT_DEATH(PlaceOf(6, 2, 3), "index < tiles_m . tiles_n");
}

// The tiles of wgmma_tiled, their properties, and the tile that a problem takes.

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
  EXPECT_EQ(Chosen(Of(128, 1024, 1024)), "64x64 in 4");
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
        const bool is_short = CeilDivide(CeilDivide(k, 64), tile.splits()) <= tile.stages;
        EXPECT_LE(WgmmaWork(tile, of.size) * tile.blocks,
                  tile.blocks == 2 || (tile.n == 64 && is_short) ? 132 : 120);
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

TEST(WgmmaSizeInClasses, CountsWholeClustersOfEachClassAndTheColumnsBeforeRows) {
  const WgmmaTile single = {128, 256, 4, 1, WgmmaCluster::kColumns};
  const WgmmaTile pair = {128, 256, 4, 2, WgmmaCluster::kColumns};
  const auto in_classes = [](const WgmmaTile& tile, int64_t m, int64_t k) {
    return WgmmaSizeInClasses(tile, {.m = m, .n = 8, .k = k, .batches = 1});
  };
  EXPECT_EQ(in_classes(single, 1024, 7).m, 8 * 128);
  EXPECT_EQ(in_classes(single, 1025, 7).m, 8 * 256);
  EXPECT_EQ(in_classes(pair, 1024, 7).m, 8 * 256);
  EXPECT_EQ(in_classes(pair, 4095, 7).m, 8 * 512);
  EXPECT_EQ(in_classes(pair, 1, 4097).k, 4097 + 7);
  EXPECT_EQ(in_classes(pair, 1, 4098).k, 4098 + 6);
  EXPECT_EQ(in_classes(pair, 1, 4092).k, 4092 + 4);
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
