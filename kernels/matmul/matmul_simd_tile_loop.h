// The multiplication of matmul_simd_tiles.h, as a template of the unit that multiplies tiles: the
// processor's, or a test's own.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/matmul/matmul_simd_tiles.h"
#include "proto/common/check.h"

namespace warpcall::matmul::tiles {

// Rows of a tile, and words or sums in each.
inline constexpr int64_t kSide = 16;

// A block of sums: 2 x 2 tiles.
inline constexpr int64_t kBlockSide = 2 * kSide;
static_assert(kTileRows == kBlockSide && pairs::kSumsStride == kBlockSide &&
              pairs::kPanelColumns % kBlockSide == 0 && pairs::kDepthWords % kSide == 0);

// sums = a x b, by 16 words of k at a time. Unit's tiles 0 to 3 are sums, 4 and 5 of a, 6 and 7 of
// b. Tall and wide are blocks of two tiles in that direction.
template <typename Unit, bool kTall, bool kWide>
void MultiplyBlock(const pairs::Tile& tile, float* sums) {
  constexpr int64_t kWordBytes = sizeof(uint32_t);
  constexpr int64_t kRowBytes = pairs::kRowWords * kWordBytes;
  constexpr int64_t kPanelBytes = pairs::kPanelColumns * kWordBytes;
  const int64_t words = (tile.depth + 1) / 2;
  Unit::template Zero<0>();
  if constexpr (kWide) Unit::template Zero<1>();
  if constexpr (kTall) Unit::template Zero<2>();
  if constexpr (kTall && kWide) Unit::template Zero<3>();
  for (int64_t p = 0; p < words; p += kSide) {
    const uint32_t* const a = tile.a + p;
    const uint32_t* const b = tile.b + p * pairs::kPanelColumns;
    Unit::template Load<4>(a, kRowBytes);
    Unit::template Load<6>(b, kPanelBytes);
    Unit::template AddProducts<0, 4, 6>();
    if constexpr (kWide) {
      Unit::template Load<7>(b + kSide, kPanelBytes);
      Unit::template AddProducts<1, 4, 7>();
    }
    if constexpr (kTall) {
      Unit::template Load<5>(a + kSide * pairs::kRowWords, kRowBytes);
      Unit::template AddProducts<2, 5, 6>();
    }
    if constexpr (kTall && kWide) Unit::template AddProducts<3, 5, 7>();
  }
  constexpr int64_t kSumsBytes = kBlockSide * static_cast<int64_t>(sizeof(float));
  Unit::template Store<0>(sums, kSumsBytes);
  if constexpr (kWide) Unit::template Store<1>(sums + kSide, kSumsBytes);
  if constexpr (kTall) Unit::template Store<2>(sums + kSide * kBlockSide, kSumsBytes);
  if constexpr (kTall && kWide)
    Unit::template Store<3>(sums + kSide * kBlockSide + kSide, kSumsBytes);
}

// The sums begin at 0 and are added to c by themselves: what c holds may be subnormal, which the
// instruction would take as 0.
template <typename Unit>
void MultiplyByTiles(int64_t rows, int64_t columns, const pairs::Tile& tile) {
  WARPCALL_DCHECK(rows >= 1 && rows <= kTileRows, rows);
  WARPCALL_DCHECK(columns >= 1 && columns <= pairs::kPanelColumns, columns);
  WARPCALL_DCHECK(tile.depth >= 1 && tile.depth <= pairs::kDepth, tile.depth);
  if (!pairs::StaysNormal(rows, tile)) {
    for (int64_t i = 0; i < rows; i += pairs::kTileRows) {
      pairs::Tile part = tile;
      part.a += i * pairs::kRowWords;
      part.c += i * tile.c_stride;
      pairs::MultiplyTile(std::min<int64_t>(pairs::kTileRows, rows - i), columns, part);
    }
    return;
  }
  alignas(64) float sums[kBlockSide * kBlockSide];
  const typename Unit::Session session;
  for (int64_t j = 0; j < columns; j += kBlockSide) {
    pairs::Tile part = tile;
    part.b += j;
    part.c += j;
    const bool tall = rows > kSide;
    const bool wide = columns - j > kSide;
    if (tall && wide) {
      MultiplyBlock<Unit, true, true>(part, sums);
    } else if (tall) {
      MultiplyBlock<Unit, true, false>(part, sums);
    } else if (wide) {
      MultiplyBlock<Unit, false, true>(part, sums);
    } else {
      MultiplyBlock<Unit, false, false>(part, sums);
    }
    pairs::PutSums(rows, wide ? kBlockSide : kSide, sums, part);
  }
}

}  // namespace warpcall::matmul::tiles
