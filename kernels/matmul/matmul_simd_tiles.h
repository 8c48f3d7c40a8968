// The blocked multiplication's inner part for bfloat16 on processors with AMX, whose tiles multiply
// 16 rows by 32 terms by 16 columns at once. It takes what matmul_simd_pairs.h packs: 16 words of
// 16 packed rows are a tile of a, and 16 rows of 16 words of a panel one of b.
#pragma once

#include <cstdint>

#include "kernels/matmul/matmul_simd_pairs.h"

namespace warpcall::matmul::tiles {

// Two by two tiles of sums share the loads of two tiles of a and two of b, which takes all eight
// tile registers.
inline constexpr int kTileRows = 32;

// Returns true if this processor and its system have the instructions, and those of pairs.
bool Available();

// As pairs::MultiplyTile, for up to kTileRows rows. REQUIRES: tile.a has memory for kTileRows
// packed rows; those beyond `rows` may hold anything.
void MultiplyTile(int64_t rows, int64_t columns, const pairs::Tile& tile);

}  // namespace warpcall::matmul::tiles
