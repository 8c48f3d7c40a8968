// The multiplication for few rows of a: every element of b is read once, where it lies, and used at
// once; packing b would cost as much as the multiplication itself. The limit is memory, not
// arithmetic. Included once per target, inside hwy/foreach_target.h.
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "kernels/matmul/matmul_simd_narrow-inl.h"
#include "kernels/matmul/matmul_simd_strip-inl.h"
#include "proto/common/check.h"

#if defined(WARPCALL_KERNELS_MATMUL_SIMD_SKINNY_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WARPCALL_KERNELS_MATMUL_SIMD_SKINNY_INL_H_
#undef WARPCALL_KERNELS_MATMUL_SIMD_SKINNY_INL_H_
#else
#define WARPCALL_KERNELS_MATMUL_SIMD_SKINNY_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace warpcall::matmul::HWY_NAMESPACE {

// Most rows of a if k is adjacent in b, which would have to be transposed to be packed.
inline constexpr int kRowsAlongKMax = 8;
// Most rows of a if k is adjacent in b, by pairs. With 64 rows their sums and words would fill the
// inner caches.
inline constexpr int kRowsOfPairsMax = 48;
static_assert(kRowsPerPass == pairs::kFewRowsMax);
// Columns that one group of rows meets before the next group does, by pairs: 256 KiB of b.
inline constexpr int64_t kColumnsPerPass = 21 * pairs::kFewColumns;
// Sums of a strip over a chunk of k and a's rows stay in the inner cache: 8 x (512 + 512) floats
// are 32 KiB.
inline constexpr int64_t kStripColumnsMax = 512;
inline constexpr int64_t kStripColumnsMin = 64;
// Length of the pieces in which columns are walked if k is adjacent in b: shorter pieces pay for
// their sums' ends and memory's beginnings. a's rows, 64 KiB of floats, stay in the middle cache.
template <int R>
inline constexpr int64_t kColumnChunkDepth = R > 4 ? 2048 : 4096;
// Rows of b added per visit to the sums, so that 8 multiplications share one load and store of a
// sum.
inline constexpr int kRowsPerVisit = 8;
// Columns of b walked at a time where k is adjacent: with one row of a, 4 chains of additions; with
// more than 6, the sums of 4 would not fit the registers.
template <int R>
inline constexpr int kColumnsPerVisit = R > 6 ? 3 : 4;
// Distance of prefetches ahead of a column's vector: of 512 to 2048 the best on a Zen 5.
inline constexpr size_t kPrefetchBytes = 1024;

template <int R, int64_t kDepth>
struct StripSums {
  HWY_ALIGN float a[R][kDepth];
  HWY_ALIGN float c[R][kStripColumnsMax];
};

struct KRange {
  int64_t begin;
  int64_t depth;
};

// A row of sums of a strip.
using SumsRow = float[kStripColumnsMax];

// Adds K rows of b, weighted by a, to R rows of sums.
template <int R, int K, typename T>
HWY_INLINE void AddRows(const Strip<T>& x, const T* b, const float* a, SumsRow* sums) {
  const FloatTag d;
  for (int64_t j = 0; j < x.columns; j += kLanes) {
    const int64_t left = x.columns - j;
    FloatVector rows[K];
#pragma GCC unroll 8
    for (int i = 0; i < K; ++i) {
      const T* from = b + i * x.b.row_stride + j;
      rows[i] = left >= kLanes ? LoadFloats(d, from) : LoadFloatsPartial(d, from, left, T{});
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      FloatVector sum = hn::Load(d, sums[r] + j);
#pragma GCC unroll 8
      for (int i = 0; i < K; ++i)
        sum = hn::MulAdd(hn::Set(d, a[r * kChunkDepth + i]), rows[i], sum);
      hn::Store(sum, d, sums[r] + j);
    }
  }
}

// Adds to R rows of sums what the elements of k in `range` contribute.
template <int R, typename T>
void AddChunk(const Strip<T>& x, KRange range, SumsRow* sums) {
  HWY_ALIGN float a[R][kChunkDepth];
  LoadRowsOfA(x.a.At(0, range.begin), range.depth, a);
  const T* b = x.b.At(range.begin, 0).data;
  int64_t p = 0;
  for (; p + kRowsPerVisit <= range.depth; p += kRowsPerVisit)
    AddRows<R, kRowsPerVisit>(x, b + p * x.b.row_stride, a[0] + p, sums);
  for (; p < range.depth; ++p) AddRows<R, 1>(x, b + p * x.b.row_stride, a[0] + p, sums);
}

// AddChunk for a number of rows known at run time, 1 to R.
template <int R, typename T>
void AddChunkOf(int64_t rows, const Strip<T>& x, KRange range, SumsRow* sums) {
  if (rows < R) {
    if constexpr (R > 1) return AddChunkOf<R - 1>(rows, x, range, sums);
  }
  AddChunk<R>(x, range, sums);
}

// sums += part, of `rows` rows.
inline void AddSums(int64_t rows, int64_t columns, const SumsRow* part, SumsRow* sums) {
  const FloatTag d;
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t j = 0; j < columns; j += kLanes)
      hn::Store(hn::Add(hn::Load(d, sums[r] + j), hn::Load(d, part[r] + j)), d, sums[r] + j);
}

// Each chunk is summed by itself: over all of k the errors of terms that are alike would add up.
template <typename T>
void MultiplyStripByRows(int64_t rows, const Strip<T>& x) {
  HWY_ALIGN SumsRow sums[kRowsAcrossKMax];
  HWY_ALIGN SumsRow chunk[kRowsPerPass];
  for (int64_t r = 0; r < rows; ++r) std::fill(sums[r], sums[r] + kStripColumnsMax, 0.0f);
  const int64_t per_pass = CeilDivide(rows, CeilDivide(rows, int64_t{kRowsPerPass}));
  for (int64_t p = 0; p < x.depth; p += kChunkDepth) {
    if (x.StopsBefore(p)) return;
    const KRange range{p, std::min(kChunkDepth, x.depth - p)};
    Strip<T> part = x;
    for (int64_t first = 0; first < rows; first += per_pass) {
      const int64_t count = std::min(per_pass, rows - first);
      part.a = x.a.At(first, 0);
      for (int64_t r = 0; r < count; ++r) std::fill(chunk[r], chunk[r] + kStripColumnsMax, 0.0f);
      AddChunkOf<kRowsPerPass>(count, part, range, chunk);
      AddSums(count, x.columns, chunk, sums + first);
    }
  }
  for (int64_t r = 0; r < rows; ++r) FinishRow(x.finish, sums[r], x.columns, x.c + r * x.c_stride);
}

// Adds to C columns of sums, from column j, what the elements of k in `range` contribute.
template <int R, int C, typename T>
HWY_INLINE void AddColumns(const Strip<T>& x, KRange range, int64_t j,
                           StripSums<R, kColumnChunkDepth<R>>* strip) {
  const T* const b = x.b.At(range.begin, j).data;
  const int64_t depth = range.depth;
  const FloatTag d;
  FloatVector sums[R][C];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
    for (int i = 0; i < C; ++i) sums[r][i] = hn::Zero(d);
  for (int64_t p = 0; p < depth; p += kLanes) {
    FloatVector columns[C];
#pragma GCC unroll 4
    for (int i = 0; i < C; ++i) {
      const T* from = b + i * x.b.column_stride + p;
      hwy::Prefetch(from + kPrefetchBytes / sizeof(T));
      columns[i] =
          depth - p >= kLanes ? LoadFloats(d, from) : LoadFloatsPartial(d, from, depth - p, T{});
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const FloatVector row = hn::Load(d, strip->a[r] + p);
#pragma GCC unroll 4
      for (int i = 0; i < C; ++i) sums[r][i] = hn::MulAdd(row, columns[i], sums[r][i]);
    }
  }
  for (int r = 0; r < R; ++r)
    for (int i = 0; i < C; ++i) strip->c[r][j + i] += hn::GetLane(hn::SumOfLanes(d, sums[r][i]));
}

template <int R, typename T>
void MultiplyStripByColumns(const Strip<T>& x) {
  StripSums<R, kColumnChunkDepth<R>> strip;
  for (int r = 0; r < R; ++r) std::fill(strip.c[r], strip.c[r] + kStripColumnsMax, 0.0f);
  for (int64_t p0 = 0; p0 < x.depth; p0 += kColumnChunkDepth<R>) {
    if (x.StopsBefore(p0)) return;
    const KRange range{p0, std::min(kColumnChunkDepth<R>, x.depth - p0)};
    LoadRowsOfA(x.a.At(0, p0), range.depth, strip.a);
    int64_t j = 0;
    constexpr int kColumns = kColumnsPerVisit<R>;
    for (; j + kColumns <= x.columns; j += kColumns) AddColumns<R, kColumns>(x, range, j, &strip);
    for (; j < x.columns; ++j) AddColumns<R, 1>(x, range, j, &strip);
  }
  for (int r = 0; r < R; ++r) FinishRow(x.finish, strip.c[r], x.columns, x.c + r * x.c_stride);
}

// Rows of a that meet a chunk of b together, by pairs.
struct PairsPass {
  const pairs::FewRows* a;
  int64_t rows;
  SumsRow* sums;
};

// Adds to kColumnsPerPass columns of sums, from column j, what the elements of k in `range`
// contribute.
inline void AddColumnsByPairs(const PairsPass& pass, const Strip<BFloat16>& x, KRange range,
                              int64_t j) {
  for (const int64_t end = std::min(j + kColumnsPerPass, x.columns); j < end;
       j += pairs::kFewColumns)
    pairs::AddFewColumns(pass.rows, std::min<int64_t>(pairs::kFewColumns, end - j),
                         {.a = pass.a,
                          .b = x.b.At(range.begin, j).data,
                          .b_stride = x.b.column_stride,
                          .c = pass.sums[0] + j,
                          .c_stride = kStripColumnsMax,
                          .depth = range.depth});
}

// MultiplyStripByColumns in pairs of bfloat16.
inline void MultiplyStripByPairs(int64_t rows, const Strip<BFloat16>& x) {
  pairs::FewRows a[CeilDivide(kRowsOfPairsMax, kRowsPerPass)];
  HWY_ALIGN SumsRow sums[kRowsOfPairsMax];
  for (int64_t r = 0; r < rows; ++r) std::fill(sums[r], sums[r] + kStripColumnsMax, 0.0f);
  const int64_t passes = CeilDivide(rows, int64_t{kRowsPerPass});
  const int64_t per_pass = CeilDivide(rows, passes);
  const auto rows_of = [&](int64_t pass) { return std::min(per_pass, rows - pass * per_pass); };
  for (int64_t p = 0; p < x.depth; p += pairs::kFewDepth) {
    if (x.StopsBefore(p)) return;
    const KRange range{p, std::min(pairs::kFewDepth, x.depth - p)};
    for (int64_t i = 0; i < passes; ++i)
      pairs::PackFewRows(Paired::Of(x.a.At(i * per_pass, p)), rows_of(i), range.depth, &a[i]);
    for (int64_t j = 0; j < x.columns; j += kColumnsPerPass)
      for (int64_t i = 0; i < passes; ++i)
        AddColumnsByPairs({&a[i], rows_of(i), sums + i * per_pass}, x, range, j);
  }
  for (int64_t r = 0; r < rows; ++r) FinishRow(x.finish, sums[r], x.columns, x.c + r * x.c_stride);
}

template <int R, typename T>
void MultiplyStrip(int64_t rows, const Strip<T>& x) {
  if (IsNarrow(x)) return MultiplyNarrow(rows, x);
  if (x.b.column_stride == 1) return MultiplyStripByRows(rows, x);
  if (rows < R) {
    if constexpr (R > 1) return MultiplyStrip<R - 1>(rows, x);
  }
  MultiplyStripByColumns<R>(x);
}

inline int64_t SkinnyRowsMax(const Shape& shape) {
  return shape.b_column_stride == 1 ? kRowsAcrossKMax : kRowsAlongKMax;
}

inline bool TakesSkinnyByPairs(const Shape& shape) {
  return shape.b_column_stride != 1 && shape.m <= kRowsOfPairsMax;
}

// REQUIRES: shape.m <= SkinnyRowsMax(shape), or in pairs TakesSkinnyByPairs(shape) and
// pairs::Available().
template <bool kInPairs, typename T>
void MultiplySkinny(const Shape& shape, const Operands& operands, const Finish<T>& finish,
                    const Team& team) {
  WARPCALL_CHECK(kInPairs ? TakesSkinnyByPairs(shape) : shape.m <= SkinnyRowsMax(shape), shape.m,
                 shape.b_column_stride);
  const int64_t share = CeilDivide(shape.n, team.slots());
  const int64_t strip_columns = std::clamp<int64_t>(hwy::RoundUpTo(share, kStripColumnsMin),
                                                    kStripColumnsMin, kStripColumnsMax);
  const int64_t strips = CeilDivide(shape.n, strip_columns);
  team.ForEach(shape.batches() * strips, [&](int, int64_t index) {
    const Offsets at = shape.BatchOffsets(index / strips);
    const int64_t j = index % strips * strip_columns;
    const Matrix<T> a{static_cast<const T*>(operands.inputs[0]) + at.a, shape.a_row_stride,
                      shape.a_column_stride};
    const Matrix<T> b{static_cast<const T*>(operands.inputs[1]) + at.b, shape.b_row_stride,
                      shape.b_column_stride};
    const Strip<T> strip{a,
                         b.At(0, j),
                         static_cast<T*>(operands.outputs[0]) + at.c + j,
                         shape.n,
                         std::min(strip_columns, shape.n - j),
                         shape.k,
                         team.stop(),
                         finish.From(j)};
    if constexpr (kInPairs) {
      MultiplyStripByPairs(shape.m, strip);
    } else {
      MultiplyStrip<kRowsAlongKMax>(shape.m, strip);
    }
  });
}

}  // namespace warpcall::matmul::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
