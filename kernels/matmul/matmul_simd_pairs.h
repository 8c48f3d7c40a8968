// The blocked multiplication's inner parts for bfloat16 on processors that multiply pairs of them:
// AVX512_BF16's VDPBF16PS adds the products of two neighbours in k to a float32 sum. So operands
// are packed as they are, two terms of k in a word, and nothing is widened.
//
// VDPBF16PS takes subnormal inputs as 0 and gives subnormal sums as 0, whatever the control
// register says (Intel SDM). Packing notes the least magnitude of what it packs, and where that
// leaves room for a subnormal, a tile multiplies the same words by float32's multiply-adds, which
// keep it: sums are those of float32 arithmetic everywhere.
#pragma once

#include <cstdint>

#include "proto/common/half.h"

namespace warpcall::matmul::pairs {

// The tile is 6 x 64: 24 registers of sums, 4 of b and one of a are 29 of 32, and 24 chains hide
// the instruction's latency.
inline constexpr int kTileRows = 6;
inline constexpr int kPanelColumns = 64;

// Terms of k that are packed at once: a panel of b is 128 KiB of the middle cache. Sums are loaded
// and stored, and b is packed, for half as much multiplying as in float32, and so weigh twice as
// much. On Zen 5 512 terms and 512 rows were 13 % slower at 2048^3, 1024 terms and 512 rows 10 %.
inline constexpr int64_t kDepth = 1024;
// Rows whose sums wait for the next kDepth: 1024 x 1024 floats are 4 MiB.
inline constexpr int64_t kStagedRows = 1024;
inline constexpr int64_t kDepthWords = kDepth / 2;  // two terms each

// Behind the words of a packed row, and of a panel, a cache line has their least magnitude. Rows
// are thus no multiple of a page apart, or they would share cache sets.
inline constexpr int64_t kNoteWords = 16;
inline constexpr int64_t kRowWords = kDepthWords + kNoteWords;
inline constexpr int64_t kPanelWords = kDepthWords * kPanelColumns + kNoteWords;

// Returns true if this processor and its system have the instructions.
bool Available();

// Returns true if neither elements nor sums of products are ever subnormal, for elements that are 0
// or no less than `a_noted` and `b_noted`: bits of magnitudes, less 1. Such sums are integers times
// the product of the two last bits, 2^(e - 127 - 7) for an exponent of e, and stay so when they are
// rounded to float32: the product has to be 2^-126 at least.
bool StaysNormal(uint32_t a_noted, uint32_t b_noted);

// Element (row, column) is at data[row * row_stride + column * column_stride]; one of the two is 1.
struct Matrix {
  const BFloat16* data;
  int64_t row_stride;
  int64_t column_stride;
};

// REQUIRES, here and below: Available(), 1 <= depth <= kDepth, and memory that is aligned to cache
// lines.

// Packs a[rows, depth] to `rows` rows of kRowWords.
void PackRows(const Matrix& a, int64_t rows, int64_t depth, uint32_t* packed);

// Packs b[depth, columns], 1 <= columns <= kPanelColumns, to kPanelWords. Like those of a, its
// words are filled up with zeros to a multiple of 16 along k.
void PackPanel(const Matrix& b, int64_t depth, int64_t columns, uint32_t* packed);

struct Tile {
  const uint32_t* a;  // the first of packed rows
  const uint32_t* b;  // a packed panel
  float* c;
  int64_t c_stride;
  int64_t depth;
  bool accumulate;  // add to c instead of overwriting it
};

// c[rows, columns] (+)= a x b. REQUIRES: 1 <= rows <= kTileRows, 1 <= columns <= kPanelColumns.
// Also writes the columns that follow, up to a multiple of 16.
void MultiplyTile(int64_t rows, int64_t columns, const Tile& tile);

// StaysNormal(a_noted, b_noted) for all elements that are packed in `tile`.
bool StaysNormal(int64_t rows, const Tile& tile);

inline constexpr int64_t kSumsStride = 32;

// Puts sums[rows, columns], kSumsStride apart, where those of `tile` are wanted. REQUIRES: columns
// is a multiple of 16.
void PutSums(int64_t rows, int64_t columns, const float* sums, const Tile& tile);

// Few rows of a against columns of b whose terms lie side by side, which are read where they lie.
inline constexpr int kFewRowsMax = 8;
// Columns at a time: 24 sums, 3 of b and one of a are 28 of 32 registers.
inline constexpr int kFewColumns = 3;
// Terms at a time: eight rows of them, 32 KiB, stay in the inner cache.
inline constexpr int64_t kFewDepth = 2048;
inline constexpr int64_t kFewRowWords = kFewDepth / 2 + kNoteWords;

struct FewRows {
  alignas(64) uint32_t words[kFewRowsMax * kFewRowWords];
  uint32_t noted;  // the least magnitude of all, as StaysNormal takes it
};

// Packs a[rows, depth], 1 <= rows <= kFewRowsMax, 1 <= depth <= kFewDepth.
void PackFewRows(const Matrix& a, int64_t rows, int64_t depth, FewRows* packed);

struct FewTile {
  const FewRows* a;
  const BFloat16* b;
  int64_t b_stride;  // elements from one column to the next
  float* c;
  int64_t c_stride;
  int64_t depth;  // that of a
};

// c[rows, columns] += a x b, with the rows of a, 1 <= columns <= kFewColumns.
void AddFewColumns(int64_t rows, int64_t columns, const FewTile& tile);

}  // namespace warpcall::matmul::pairs
