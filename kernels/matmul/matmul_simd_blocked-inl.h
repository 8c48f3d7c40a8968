// The blocked multiplication: packed panels of b, rows of a, and a register-blocked kernel between
// them, in the loop order of K. Goto, R. van de Geijn, "Anatomy of high-performance matrix
// multiplication", 2008. Included once per target, inside hwy/foreach_target.h.
//
//   for each block of columns (kBlockColumns of b: its packed slice stays in the outer cache)
//     for each block of rows (all of them, unless sums of a 16-bit type have to be kept in the
//     workspace)
//       for each kDepth of k
//         pack b's slice into panels of kPanelColumns columns        [threads share panels]
//         for each task (rows x columns)                             [threads share tasks]
//           pack a's rows (they stay in the middle cache)
//           for each panel of b (it stays in the inner cache), for each kTileRows rows: the kernel
#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
#include "kernels/cpu/simd_convert-inl.h"
#include "kernels/cpu/simd_gelu-inl.h"
#include "kernels/matmul/matmul.h"
#include "kernels/matmul/matmul_epilogue.h"
#include "kernels/matmul/matmul_simd_pairs.h"
#include "kernels/matmul/matmul_simd_team.h"
#include "kernels/matmul/matmul_simd_tiles.h"

#if defined(WARPCALL_KERNELS_MATMUL_SIMD_BLOCKED_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WARPCALL_KERNELS_MATMUL_SIMD_BLOCKED_INL_H_
#undef WARPCALL_KERNELS_MATMUL_SIMD_BLOCKED_INL_H_
#else
#define WARPCALL_KERNELS_MATMUL_SIMD_BLOCKED_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace warpcall::matmul::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using cpu::HWY_NAMESPACE::LoadFloats;
using cpu::HWY_NAMESPACE::LoadFloatsPartial;
using cpu::HWY_NAMESPACE::StoreFloats;
using cpu::HWY_NAMESPACE::StoreFloatsPartial;

using FloatTag = hn::ScalableTag<float>;
using FloatVector = hn::Vec<FloatTag>;
inline constexpr int kLanes = HWY_LANES(float);

// The kernel's tile: rows x 2 vectors of sums, 2 vectors of b and a broadcast element of a have to
// fit the registers, 32 with AVX-512 (12 x 2 + 3) and 16 otherwise (6 x 2 + 3); 12 chains are also
// what two FMA units of latency 4 need to stay busy.
inline constexpr int kTileRows = HWY_TARGET <= HWY_AVX3 ? 12 : 6;
inline constexpr int kPanelVectors = 2;
inline constexpr int kPanelColumns = kPanelVectors * kLanes;

// A panel of b is kDepth x kPanelColumns floats: 32 KiB with AVX-512, which leaves an inner cache
// of 48 KiB room for the tile's rows of a; 16 KiB of 32 with AVX2.
inline constexpr int64_t kDepth = 256;
// Rows of a are kept as rows, a fixed distance apart, so that the kernel addresses them by
// constants; the distance is no multiple of a page, or rows would share cache sets.
inline constexpr int64_t kRowDistance = kDepth + 16;

struct Tile {
  const float* a;  // rows kRowDistance apart
  const float* b;  // a panel
  float* c;
  int64_t c_stride;
  int64_t depth;
  bool accumulate;  // add to c instead of overwriting it
};

// c[R, V vectors] (+)= a x b.
template <int R, int V>
HWY_NOINLINE void MultiplyTile(const Tile& tile) {
  const FloatTag d;
  FloatVector sums[R][V];
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 2
    for (int v = 0; v < V; ++v) sums[r][v] = hn::Zero(d);
  const float* HWY_RESTRICT a = tile.a;
  const float* HWY_RESTRICT b = tile.b;
  for (int64_t p = 0; p < tile.depth; ++p, ++a, b += kPanelColumns) {
    FloatVector columns[V];
#pragma GCC unroll 2
    for (int v = 0; v < V; ++v) columns[v] = hn::LoadU(d, b + v * kLanes);
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
      const FloatVector row = hn::Set(d, a[r * kRowDistance]);
#pragma GCC unroll 2
      for (int v = 0; v < V; ++v) sums[r][v] = hn::MulAdd(row, columns[v], sums[r][v]);
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 2
    for (int v = 0; v < V; ++v) {
      float* to = tile.c + r * tile.c_stride + v * kLanes;
      hn::StoreU(tile.accumulate ? hn::Add(hn::LoadU(d, to), sums[r][v]) : sums[r][v], d, to);
    }
  }
}

// MultiplyTile for a number of rows known at run time, 1 <= rows <= R.
template <int R, int V>
HWY_INLINE void MultiplyRows(int64_t rows, const Tile& tile) {
  if (rows == R) return MultiplyTile<R, V>(tile);
  if constexpr (R > 1) MultiplyRows<R - 1, V>(rows, tile);
}

// A tile at the right edge: through a full-width copy of c.
static HWY_NOINLINE void MultiplyEdge(int64_t rows, int64_t columns, const Tile& tile) {
  float copy[kTileRows * kPanelColumns];
  Tile inner = tile;
  inner.c = copy;
  inner.c_stride = kPanelColumns;
  inner.accumulate = false;
  if (columns <= kLanes) {
    MultiplyRows<kTileRows, 1>(rows, inner);
  } else {
    MultiplyRows<kTileRows, 2>(rows, inner);
  }
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t j = 0; j < columns; ++j) {
      float& to = tile.c[r * tile.c_stride + j];
      const float sum = copy[r * kPanelColumns + j];
      to = tile.accumulate ? to + sum : sum;
    }
}

template <typename T>
HWY_INLINE void RowToFloat(const T* from, int64_t count, float* to) {
  const FloatTag d;
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) hn::StoreU(LoadFloats(d, from + i), d, to + i);
  for (; i < count; ++i) to[i] = ToFloat(from[i]);
}

template <typename T>
HWY_INLINE void RowFromFloat(const float* from, int64_t count, T* to) {
  const FloatTag d;
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) StoreFloats(d, hn::LoadU(d, from + i), to + i);
  for (; i < count; ++i) to[i] = FromFloat<T>(from[i]);
}

// Finishes a row of sums. The bias of an output is bias[0], or that of its column.
template <typename T>
struct Finish {
  const T* bias = nullptr;  // null: sums are rounded as they are
  bool bias_by_column = true;
  Activation activation = Activation::kNone;

  // Returns the finish of outputs from column `column` on.
  Finish From(int64_t column) const {
    Finish from = *this;
    if (bias != nullptr && bias_by_column) from.bias += column;
    return from;
  }
};

HWY_INLINE FloatVector Activate(Activation activation, FloatVector sum) {
  const FloatTag d;
  switch (activation) {
    case Activation::kNone:
      return sum;
    case Activation::kRelu:  // NaN is not below 0
      return hn::IfThenZeroElse(hn::Lt(sum, hn::Zero(d)), sum);
    case Activation::kGelu:
      return cpu::HWY_NAMESPACE::TanhForm::Apply(d, sum);
    case Activation::kGeluErf:
      return cpu::HWY_NAMESPACE::ErfForm::Apply(d, sum);
  }
  return sum;
}

// `to` may be where the sums are.
template <typename T>
HWY_INLINE void FinishRow(const Finish<T>& finish, const float* from, int64_t count, T* to) {
  if (finish.bias == nullptr) {
    if (static_cast<const void*>(from) != static_cast<const void*>(to))
      RowFromFloat(from, count, to);
    return;
  }
  const FloatTag d;
  const FloatVector shared = hn::Set(d, ToFloat(finish.bias[0]));
  const T* const bias = finish.bias;
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const FloatVector shift = finish.bias_by_column ? LoadFloats(d, bias + i) : shared;
    StoreFloats(d, Activate(finish.activation, hn::Add(hn::LoadU(d, from + i), shift)), to + i);
  }
  if (i == count) return;
  const auto left = static_cast<size_t>(count - i);
  const FloatVector shift =
      finish.bias_by_column ? LoadFloatsPartial(d, bias + i, left, T{}) : shared;
  const FloatVector sum = hn::Add(LoadFloatsPartial(d, from + i, left, 0.0f), shift);
  StoreFloatsPartial(d, Activate(finish.activation, sum), to + i, left);
}

// A block of `rows` x `columns`, columns adjacent, stored with rows adjacent.
template <typename T>
struct TransposedBlock {
  const T* from;
  int64_t from_stride;
  int64_t rows;
  int64_t columns;
  float* to;
  int64_t to_stride;
};

#if HWY_TARGET != HWY_SCALAR
// The first four rows and columns of `x`, by two rounds of interleaving.
template <typename T>
HWY_INLINE void Transpose4x4(const TransposedBlock<T>& x) {
  const hn::CappedTag<float, 4> d;
  const hn::Repartition<double, decltype(d)> pairs;
  const auto row = [&](int64_t i) HWY_ATTR { return LoadFloats(d, x.from + i * x.from_stride); };
  const auto low01 = hn::BitCast(pairs, hn::InterleaveLower(d, row(0), row(1)));
  const auto low23 = hn::BitCast(pairs, hn::InterleaveLower(d, row(2), row(3)));
  const auto high01 = hn::BitCast(pairs, hn::InterleaveUpper(d, row(0), row(1)));
  const auto high23 = hn::BitCast(pairs, hn::InterleaveUpper(d, row(2), row(3)));
  const auto store = [&](int64_t j, hn::Vec<decltype(pairs)> column) HWY_ATTR {
    hn::StoreU(hn::BitCast(d, column), d, x.to + j * x.to_stride);
  };
  store(0, hn::InterleaveLower(pairs, low01, low23));
  store(1, hn::InterleaveUpper(pairs, low01, low23));
  store(2, hn::InterleaveLower(pairs, high01, high23));
  store(3, hn::InterleaveUpper(pairs, high01, high23));
}
#endif

// to[j * to_stride + i] = from[i * from_stride + j].
template <typename T>
void TransposeToFloat(const TransposedBlock<T>& x) {
  int64_t rows4 = 0;
  int64_t columns4 = 0;
#if HWY_TARGET != HWY_SCALAR
  rows4 = x.rows / 4 * 4;
  columns4 = x.columns / 4 * 4;
  for (int64_t j = 0; j < columns4; j += 4) {
    for (int64_t i = 0; i < rows4; i += 4) {
      TransposedBlock<T> block = x;
      block.from += i * x.from_stride + j;
      block.to += j * x.to_stride + i;
      Transpose4x4(block);
    }
  }
#endif
  for (int64_t j = 0; j < x.columns; ++j)
    for (int64_t i = j < columns4 ? rows4 : 0; i < x.rows; ++i)
      x.to[j * x.to_stride + i] = ToFloat(x.from[i * x.from_stride + j]);
}

// The start and the strides of a matrix.
template <typename T>
struct Matrix {
  const T* data;
  int64_t row_stride;
  int64_t column_stride;

  Matrix At(int64_t row, int64_t column) const {
    return {data + row * row_stride + column * column_stride, row_stride, column_stride};
  }
};

template <typename T>
void PackRows(const Matrix<T>& a, int64_t rows, int64_t depth, float* packed) {
  if (a.column_stride != 1)
    return TransposeToFloat(
        TransposedBlock<T>{a.data, a.column_stride, depth, rows, packed, kRowDistance});
  for (int64_t i = 0; i < rows; ++i)
    RowToFloat(a.data + i * a.row_stride, depth, packed + i * kRowDistance);
}

// Fills up a panel narrower than kPanelColumns with zeros, whose products are dropped.
template <typename T>
void PackPanel(const Matrix<T>& b, int64_t depth, int64_t columns, float* packed) {
  if (columns < kPanelColumns) std::fill(packed, packed + depth * kPanelColumns, 0.0f);
  if (b.column_stride != 1)
    return TransposeToFloat(
        TransposedBlock<T>{b.data, b.column_stride, columns, depth, packed, kPanelColumns});
  for (int64_t p = 0; p < depth; ++p)
    RowToFloat(b.data + p * b.row_stride, columns, packed + p * kPanelColumns);
}

// The parts of a blocked multiplication for elements of any type: terms are widened to float32, a
// word each.
struct Widened {
  using Word = float;
  static constexpr int64_t kRows = kTileRows;  // in a tile
  static constexpr int64_t kTaskRows = 240;    // whole tiles
  static constexpr int64_t kColumns = kPanelColumns;
  static constexpr int64_t kTerms = kDepth;  // in a slice of k
  // Sums of a 16-bit output wait in the workspace: 512 x 1024 floats are 2 MiB.
  static constexpr int64_t kStagedRows = 512;
  static constexpr int64_t kRowWords = kRowDistance;
  static constexpr int64_t kPanelWords = kDepth * kPanelColumns;

  template <typename T>
  static void PackRows(const Matrix<T>& a, int64_t rows, int64_t depth, float* packed) {
    HWY_NAMESPACE::PackRows(a, rows, depth, packed);
  }
  template <typename T>
  static void PackPanel(const Matrix<T>& b, int64_t depth, int64_t columns, float* packed) {
    HWY_NAMESPACE::PackPanel(b, depth, columns, packed);
  }
  static void Multiply(int64_t rows, int64_t columns, const Tile& tile) {
    if (columns < kPanelColumns) return MultiplyEdge(rows, columns, tile);
    MultiplyRows<kTileRows, kPanelVectors>(rows, tile);
  }
};

// The parts for bfloat16, which is multiplied by pairs of terms.
struct Paired {
  using Word = uint32_t;
  using Tile = pairs::Tile;
  static constexpr int64_t kRows = pairs::kTileRows;
  static constexpr int64_t kTaskRows = 240;
  static constexpr int64_t kColumns = pairs::kPanelColumns;
  static constexpr int64_t kTerms = pairs::kDepth;
  static constexpr int64_t kStagedRows = pairs::kStagedRows;
  static constexpr int64_t kRowWords = pairs::kRowWords;
  static constexpr int64_t kPanelWords = pairs::kPanelWords;

  static pairs::Matrix Of(const Matrix<BFloat16>& x) {
    return {x.data, x.row_stride, x.column_stride};
  }
  static void PackRows(const Matrix<BFloat16>& a, int64_t rows, int64_t depth, uint32_t* packed) {
    pairs::PackRows(Of(a), rows, depth, packed);
  }
  static void PackPanel(const Matrix<BFloat16>& b, int64_t depth, int64_t columns,
                        uint32_t* packed) {
    pairs::PackPanel(Of(b), depth, columns, packed);
  }
  static void Multiply(int64_t rows, int64_t columns, const Tile& tile) {
    pairs::MultiplyTile(rows, columns, tile);
  }
};

// The parts for AMX, which multiplies the same words as Paired.
struct Tiled : Paired {
  static constexpr int64_t kRows = tiles::kTileRows;
  static constexpr int64_t kTaskRows = 256;

  static void Multiply(int64_t rows, int64_t columns, const Tile& tile) {
    tiles::MultiplyTile(rows, columns, tile);
  }
};

}  // namespace warpcall::matmul::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
