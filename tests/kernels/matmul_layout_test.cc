// Places of elements in shared memory, against the PTX ISA on ldmatrix and mma.m16n8k16.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <set>
#include <vector>

#include "kernels/matmul/matmul_cuda_layout.h"
#include "proto/common/check.h"

namespace warpcall::matmul {
namespace {

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

}  // namespace
}  // namespace warpcall::matmul
