#include "kernels/matmul/matmul_simd_pairs.h"

#include "hwy/base.h"
// gcc 12 takes what its own intrinsics leave undefined on purpose for a mistake.
HWY_DIAGNOSTICS(push)
#if HWY_COMPILER_GCC_ACTUAL
HWY_DIAGNOSTICS_OFF(, ignored "-Wuninitialized")
HWY_DIAGNOSTICS_OFF(, ignored "-Wmaybe-uninitialized")
#endif
#include <immintrin.h>
HWY_DIAGNOSTICS(pop)

#include <algorithm>
#include <cstdint>

#include "kernels/cpu/bf16_pairs.h"
#include "proto/common/check.h"

namespace warpcall::matmul::pairs {
namespace {

// Words, or float32, in a register.
constexpr int64_t kLanes = 16;
static_assert(kPanelColumns % kLanes == 0 && kDepthWords % kLanes == 0);
constexpr int kPanelVectors = kPanelColumns / kLanes;

constexpr uint16_t kMagnitude = 0x7FFF;

int64_t WordsFor(int64_t depth) { return (depth + 1) / 2; }

// Returns whether `memory` is aligned to cache lines.
bool IsOfLines(const void* memory) { return reinterpret_cast<uintptr_t>(memory) % 64 == 0; }

}  // namespace

bool StaysNormal(uint32_t a_noted, uint32_t b_noted) {
  constexpr int kFractionBits = 7;
  constexpr uint32_t kExponentsMin = 2 * (127 + kFractionBits) - 126;
  const uint32_t a = (a_noted + 1) >> kFractionBits;
  const uint32_t b = (b_noted + 1) >> kFractionBits;
  return a > 0 && b > 0 && a + b >= kExponentsMin;
}

bool Available() {
  static const bool available = cpu::HasBf16Pairs(cpu::ReadVectorFacts());
  return available;
}

}  // namespace warpcall::matmul::pairs

// The rest is compiled for the processors that have it, and only called there.
HWY_PUSH_ATTRIBUTES("avx512f,avx512vl,avx512bw,avx512bf16");
namespace warpcall::matmul::pairs {
namespace {

// The first `count` of kLanes lanes; none where it is negative.
inline __mmask16 FirstLanes(int64_t count) {
  return static_cast<__mmask16>((uint32_t{1} << std::clamp<int64_t>(count, 0, kLanes)) - 1);
}

// The least magnitude of 16-bit elements but 0, less 1: 0 becomes the largest of all.
class Least {
 public:
  // Written out, since a compiler's own would not be compiled for these processors.
  Least() : least_(_mm512_set1_epi16(-1)) {}

  void Take(__m512i elements) {
    const __m512i magnitudes = _mm512_and_si512(elements, _mm512_set1_epi16(kMagnitude));
    least_ = _mm512_min_epu16(least_, _mm512_sub_epi16(magnitudes, _mm512_set1_epi16(1)));
  }
  uint32_t Noted() const {
    const __m512i low = _mm512_and_si512(least_, _mm512_set1_epi32(0xFFFF));
    return std::min(_mm512_reduce_min_epu32(low),
                    _mm512_reduce_min_epu32(_mm512_srli_epi32(least_, 16)));
  }

 private:
  __m512i least_;
};

// The 2 x kLanes elements that lie side by side, zeros behind the first `count`.
inline __m512i LoadAdjacent(const BFloat16* from, int64_t count) {
  if (count >= 2 * kLanes) return _mm512_loadu_si512(from);
  const auto mask = static_cast<__mmask32>((uint64_t{1} << std::max<int64_t>(count, 0)) - 1);
  return _mm512_maskz_loadu_epi16(mask, from);
}

// Words of kLanes neighbours of two lines: `from`'s in the low halves and those `stride` behind it
// in the high ones. Zeros where `lanes` has none and, in the high halves, without `two`.
inline __m512i LoadAcross(const BFloat16* from, int64_t stride, bool two, __mmask16 lanes) {
  const __m512i low = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(lanes, from));
  if (!two) return low;
  const __m512i high = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(lanes, from + stride));
  return _mm512_or_si512(low, _mm512_slli_epi32(high, 16));
}

// Lane j of row i becomes lane i of row j: pairs of words, pairs of those, and so on.
inline void Transpose(__m512i (&rows)[kLanes]) {
  __m512i by[kLanes];
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; i += 2) {
    by[i] = _mm512_unpacklo_epi32(rows[i], rows[i + 1]);
    by[i + 1] = _mm512_unpackhi_epi32(rows[i], rows[i + 1]);
  }
  // Then rows[4 q + c] has, in each quarter, column 4 x quarter + c of four rows.
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; i += 4) {
    rows[i] = _mm512_unpacklo_epi64(by[i], by[i + 2]);
    rows[i + 1] = _mm512_unpackhi_epi64(by[i], by[i + 2]);
    rows[i + 2] = _mm512_unpacklo_epi64(by[i + 1], by[i + 3]);
    rows[i + 3] = _mm512_unpackhi_epi64(by[i + 1], by[i + 3]);
  }
  // Transposing the quarters remains.
#pragma GCC unroll 16
  for (int c = 0; c < 4; ++c) {
    const __m512i low02 = _mm512_shuffle_i32x4(rows[c], rows[4 + c], 0x88);
    const __m512i low13 = _mm512_shuffle_i32x4(rows[c], rows[4 + c], 0xDD);
    const __m512i high02 = _mm512_shuffle_i32x4(rows[8 + c], rows[12 + c], 0x88);
    const __m512i high13 = _mm512_shuffle_i32x4(rows[8 + c], rows[12 + c], 0xDD);
    by[c] = _mm512_shuffle_i32x4(low02, high02, 0x88);
    by[8 + c] = _mm512_shuffle_i32x4(low02, high02, 0xDD);
    by[4 + c] = _mm512_shuffle_i32x4(low13, high13, 0x88);
    by[12 + c] = _mm512_shuffle_i32x4(low13, high13, 0xDD);
  }
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i) rows[i] = by[i];
}

// Packs at most kLanes rows of a matrix whose rows are adjacent.
void PackRowsAcross(const Matrix& a, int64_t rows, int64_t depth, uint32_t* packed) {
  const __mmask16 lanes = FirstLanes(rows);
  Least least[kLanes];
  for (int64_t p = 0; p < depth; p += 2 * kLanes) {
    __m512i words[kLanes];
    for (int64_t q = 0; q < kLanes; ++q) {
      const int64_t at = p + 2 * q;
      words[q] = at >= depth ? _mm512_setzero_si512()
                             : LoadAcross(a.data + at * a.column_stride, a.column_stride,
                                          at + 1 < depth, lanes);
    }
    Transpose(words);
    for (int64_t i = 0; i < rows; ++i) {
      least[i].Take(words[i]);
      _mm512_store_si512(packed + i * kRowWords + p / 2, words[i]);
    }
  }
  for (int64_t i = 0; i < rows; ++i) packed[i * kRowWords + kDepthWords] = least[i].Noted();
}

// A panel of a matrix whose columns are adjacent in memory.
void PackPanelAcross(const Matrix& b, int64_t depth, int64_t columns, uint32_t* packed) {
  Least least;
  for (int64_t p = 0; p < depth; p += 2) {
    for (int64_t j = 0; j < columns; j += kLanes) {
      const __m512i words = LoadAcross(b.data + p * b.row_stride + j, b.row_stride, p + 1 < depth,
                                       FirstLanes(columns - j));
      least.Take(words);
      _mm512_store_si512(packed + p / 2 * kPanelColumns + j, words);
    }
  }
  const int64_t words = WordsFor(depth);
  for (int64_t p = words; p < (words + kLanes - 1) / kLanes * kLanes; ++p)
    for (int64_t j = 0; j < columns; j += kLanes)
      _mm512_store_si512(packed + p * kPanelColumns + j, _mm512_setzero_si512());
  packed[kDepthWords * kPanelColumns] = least.Noted();
}

// sum + a x b, of two terms in each word.
template <bool kAsFloats>
inline __m512 AddProducts(__m512 sum, __m512i a, __m512i b) {
  if constexpr (kAsFloats) {
    const __m512i high = _mm512_set1_epi32(static_cast<int>(0xFFFF0000u));
    sum = _mm512_fmadd_ps(_mm512_castsi512_ps(_mm512_slli_epi32(a, 16)),
                          _mm512_castsi512_ps(_mm512_slli_epi32(b, 16)), sum);
    return _mm512_fmadd_ps(_mm512_castsi512_ps(_mm512_and_si512(a, high)),
                           _mm512_castsi512_ps(_mm512_and_si512(b, high)), sum);
  } else {
    return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b));
  }
}

// c[R, V vectors] (+)= a x b.
template <int R, int V, bool kAsFloats>
HWY_NOINLINE void Multiply(const Tile& tile) {
  __m512 sums[R][V];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) sums[r][v] = _mm512_setzero_ps();
  const uint32_t* a = tile.a;
  const uint32_t* b = tile.b;
  for (int64_t p = WordsFor(tile.depth); p > 0; --p, ++a, b += kPanelColumns) {
    __m512i columns[V];
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) columns[v] = _mm512_load_si512(b + v * kLanes);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const __m512i row = _mm512_set1_epi32(static_cast<int>(a[r * kRowWords]));
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) sums[r][v] = AddProducts<kAsFloats>(sums[r][v], row, columns[v]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) {
      float* const to = tile.c + r * tile.c_stride + v * kLanes;
      if (tile.accumulate) sums[r][v] = _mm512_add_ps(_mm512_loadu_ps(to), sums[r][v]);
      _mm512_storeu_ps(to, sums[r][v]);
    }
  }
}

// Multiply for numbers of rows and vectors known at run time, 1 to R and 1 to V.
template <int R, int V, bool kAsFloats>
void MultiplyAny(int64_t rows, int64_t columns, const Tile& tile) {
  if constexpr (R > 1) {
    if (rows < R) return MultiplyAny<R - 1, V, kAsFloats>(rows, columns, tile);
  }
  if constexpr (V > 1) {
    if (columns <= (V - 1) * kLanes) return MultiplyAny<R, V - 1, kAsFloats>(rows, columns, tile);
  }
  Multiply<R, V, kAsFloats>(tile);
}

// Distance at which memory is prefetched ahead of a column's vector.
constexpr int64_t kPrefetchElements = 512;

// Sums of R rows times C columns, one for each lane.
template <int R, int C>
struct LaneSums {
  __m512 at[R][C];
};

// Returns the least magnitude of b's elements.
template <int R, int C, bool kAsFloats>
HWY_INLINE uint32_t SumLanes(const FewTile& tile, LaneSums<R, C>* sums) {
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
    for (int c = 0; c < C; ++c) sums->at[r][c] = _mm512_setzero_ps();
  Least least;
  const uint32_t* a = tile.a->words;
  const BFloat16* b = tile.b;
  for (int64_t left = tile.depth; left > 0; left -= 2 * kLanes, a += kLanes, b += 2 * kLanes) {
    __m512i columns[C];
#pragma GCC unroll 4
    for (int c = 0; c < C; ++c) {
      const BFloat16* const from = b + c * tile.b_stride;
      __builtin_prefetch(from + kPrefetchElements);
      columns[c] = LoadAdjacent(from, left);
      least.Take(columns[c]);
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const __m512i row = _mm512_load_si512(a + r * kFewRowWords);
#pragma GCC unroll 4
      for (int c = 0; c < C; ++c)
        sums->at[r][c] = AddProducts<kAsFloats>(sums->at[r][c], row, columns[c]);
    }
  }
  return least.Noted();
}

// Sums the elements of each of four vectors, in parts: each quarter has a part of each sum.
inline __m512 SumsOfFour(const __m512* v) {
  const __m512 first =
      _mm512_add_ps(_mm512_unpacklo_ps(v[0], v[1]), _mm512_unpackhi_ps(v[0], v[1]));
  const __m512 second =
      _mm512_add_ps(_mm512_unpacklo_ps(v[2], v[3]), _mm512_unpackhi_ps(v[2], v[3]));
  const __m512d a = _mm512_castps_pd(first);
  const __m512d b = _mm512_castps_pd(second);
  return _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(a, b)),
                       _mm512_castpd_ps(_mm512_unpackhi_pd(a, b)));
}

// Adds neighbouring quarters of two vectors, in order.
inline __m512 AddQuarters(__m512 a, __m512 b) {
  return _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xDD));
}

// Sums the elements of each of sixteen vectors.
inline __m512 SumsOfSixteen(const __m512* v) {
  return AddQuarters(AddQuarters(SumsOfFour(v), SumsOfFour(v + 4)),
                     AddQuarters(SumsOfFour(v + 8), SumsOfFour(v + 12)));
}

// Uses float32's multiply-adds if a has subnormals, and starts again with them if b has some.
template <int R, int C>
HWY_NOINLINE void AddColumns(const FewTile& tile) {
  // Zeros fill up the last sixteen.
  constexpr int kSums = (R * C + kLanes - 1) / kLanes * kLanes;
  LaneSums<R, C> sums;
  const uint32_t a_noted = tile.a->noted;
  if (!StaysNormal(a_noted, kMagnitude) ||
      !StaysNormal(a_noted, SumLanes<R, C, /*kAsFloats=*/false>(tile, &sums)))
    SumLanes<R, C, /*kAsFloats=*/true>(tile, &sums);
  __m512 lanes[kSums];
#pragma GCC unroll 32
  for (int i = 0; i < kSums; ++i)
    lanes[i] = i < R * C ? sums.at[i / C][i % C] : _mm512_setzero_ps();
  alignas(64) float totals[kSums];
#pragma GCC unroll 2
  for (int i = 0; i < kSums; i += kLanes) _mm512_store_ps(totals + i, SumsOfSixteen(lanes + i));
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
    for (int c = 0; c < C; ++c) tile.c[r * tile.c_stride + c] += totals[r * C + c];
}

// AddColumns for numbers of rows and columns known at run time, 1 to R and 1 to C.
template <int R, int C>
void AddColumnsAny(int64_t rows, int64_t columns, const FewTile& tile) {
  if constexpr (R > 1) {
    if (rows < R) return AddColumnsAny<R - 1, C>(rows, columns, tile);
  }
  if constexpr (C > 1) {
    if (columns < C) return AddColumnsAny<R, C - 1>(rows, columns, tile);
  }
  AddColumns<R, C>(tile);
}

}  // namespace

void PackRows(const Matrix& a, int64_t rows, int64_t depth, uint32_t* packed) {
  WARPCALL_DCHECK(Available() && depth >= 1 && depth <= kDepth, depth);
  WARPCALL_DCHECK(IsOfLines(packed), packed);
  if (a.column_stride != 1) {
    for (int64_t i = 0; i < rows; i += kLanes)
      PackRowsAcross({a.data + i * a.row_stride, a.row_stride, a.column_stride},
                     std::min(kLanes, rows - i), depth, packed + i * kRowWords);
    return;
  }
  for (int64_t i = 0; i < rows; ++i, packed += kRowWords) {
    Least least;
    for (int64_t p = 0; p < depth; p += 2 * kLanes) {
      const __m512i words = LoadAdjacent(a.data + i * a.row_stride + p, depth - p);
      least.Take(words);
      _mm512_store_si512(packed + p / 2, words);
    }
    packed[kDepthWords] = least.Noted();
  }
}

void PackPanel(const Matrix& b, int64_t depth, int64_t columns, uint32_t* packed) {
  WARPCALL_DCHECK(Available() && depth >= 1 && depth <= kDepth, depth);
  WARPCALL_DCHECK(columns >= 1 && columns <= kPanelColumns, columns);
  WARPCALL_DCHECK(IsOfLines(packed), packed);
  if (b.column_stride == 1) return PackPanelAcross(b, depth, columns, packed);
  Least least;
  for (int64_t j = 0; j < columns; j += kLanes) {
    for (int64_t p = 0; p < depth; p += 2 * kLanes) {
      __m512i words[kLanes];
      for (int64_t q = 0; q < kLanes; ++q) {
        words[q] = j + q >= columns
                       ? _mm512_setzero_si512()
                       : LoadAdjacent(b.data + (j + q) * b.column_stride + p, depth - p);
        least.Take(words[q]);
      }
      Transpose(words);
      for (int64_t q = 0; q < kLanes; ++q)
        _mm512_store_si512(packed + (p / 2 + q) * kPanelColumns + j, words[q]);
    }
  }
  packed[kDepthWords * kPanelColumns] = least.Noted();
}

void MultiplyTile(int64_t rows, int64_t columns, const Tile& tile) {
  WARPCALL_DCHECK(tile.depth >= 1 && tile.depth <= kDepth, tile.depth);
  WARPCALL_DCHECK(rows >= 1 && rows <= kTileRows, rows);
  WARPCALL_DCHECK(columns >= 1 && columns <= kPanelColumns, columns);
  WARPCALL_DCHECK(IsOfLines(tile.a) && IsOfLines(tile.b), tile.a, tile.b);
  if (StaysNormal(rows, tile))
    return MultiplyAny<kTileRows, kPanelVectors, false>(rows, columns, tile);
  MultiplyAny<kTileRows, kPanelVectors, true>(rows, columns, tile);
}

void PackFewRows(const Matrix& a, int64_t rows, int64_t depth, FewRows* packed) {
  WARPCALL_DCHECK(rows >= 1 && rows <= kFewRowsMax, rows);
  WARPCALL_DCHECK(depth >= 1 && depth <= kFewDepth, depth);
  Least least;
  alignas(64) BFloat16 gathered[2 * kLanes] = {};
  for (int64_t i = 0; i < rows; ++i) {
    const BFloat16* const from = a.data + i * a.row_stride;
    for (int64_t p = 0; p < depth; p += 2 * kLanes) {
      const int64_t count = std::min(2 * kLanes, depth - p);
      if (a.column_stride != 1)
        for (int64_t q = 0; q < count; ++q) gathered[q] = from[(p + q) * a.column_stride];
      const __m512i words = LoadAdjacent(a.column_stride == 1 ? from + p : gathered, count);
      least.Take(words);
      _mm512_store_si512(packed->words + i * kFewRowWords + p / 2, words);
    }
  }
  packed->noted = least.Noted();
}

void AddFewColumns(int64_t rows, int64_t columns, const FewTile& tile) {
  WARPCALL_DCHECK(rows >= 1 && rows <= kFewRowsMax, rows);
  WARPCALL_DCHECK(columns >= 1 && columns <= kFewColumns, columns);
  AddColumnsAny<kFewRowsMax, kFewColumns>(rows, columns, tile);
}

bool StaysNormal(int64_t rows, const Tile& tile) {
  uint32_t a_noted = kMagnitude;
  for (int64_t r = 0; r < rows; ++r)
    a_noted = std::min(a_noted, tile.a[r * kRowWords + kDepthWords]);
  return StaysNormal(a_noted, tile.b[kDepthWords * kPanelColumns]);
}

void PutSums(int64_t rows, int64_t columns, const float* sums, const Tile& tile) {
  WARPCALL_DCHECK(columns % kLanes == 0, columns);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t j = 0; j < columns; j += kLanes) {
      float* const to = tile.c + r * tile.c_stride + j;
      __m512 sum = _mm512_load_ps(sums + r * kSumsStride + j);
      if (tile.accumulate) sum = _mm512_add_ps(_mm512_loadu_ps(to), sum);
      _mm512_storeu_ps(to, sum);
    }
  }
}

}  // namespace warpcall::matmul::pairs
HWY_POP_ATTRIBUTES;
