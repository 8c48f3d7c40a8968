// The multiplication for few rows of a by a b of few columns, whose rows are shorter than a vector:
// vectors are taken from b as it lies, whichever rows they hold. Included once per target,
// inside hwy/foreach_target.h.
#include <algorithm>
#include <cstdint>

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "kernels/matmul/matmul_simd_strip-inl.h"
#include "proto/common/check.h"

#if defined(WARPCALL_KERNELS_MATMUL_SIMD_NARROW_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WARPCALL_KERNELS_MATMUL_SIMD_NARROW_INL_H_
#undef WARPCALL_KERNELS_MATMUL_SIMD_NARROW_INL_H_
#else
#define WARPCALL_KERNELS_MATMUL_SIMD_NARROW_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace warpcall::matmul::HWY_NAMESPACE {

// Terms that each lane adds up by themselves: over all of k the errors of terms that are alike
// would add up.
inline constexpr int64_t kNarrowDepth = 128 * kLanes;
static_assert(kDepthPerLook % kNarrowDepth == 0);

// kLanes rows of b, a group, are as many vectors as b has columns: element e of a group is of its
// row e / columns.
class NarrowGroup {
 public:
  // REQUIRES: columns < kLanes.
  explicit NarrowGroup(int64_t columns) : columns_(columns) {
    WARPCALL_DCHECK(columns > 0 && columns < kLanes, columns);
    for (int64_t e = 0; e < columns * kLanes; ++e) rows_[e] = static_cast<int32_t>(e / columns);
  }

  int64_t vectors() const { return columns_; }
  // Gives each lane of a group's vector `v` the element of a, of kLanes, that it meets.
  HWY_INLINE FloatVector Spread(FloatVector a, int64_t v) const {
    const FloatTag d;
    const hn::RebindToSigned<FloatTag> di;
    return hn::TableLookupLanes(a, hn::IndicesFromVec(d, hn::Load(di, rows_ + v * kLanes)));
  }

 private:
  const int64_t columns_;
  HWY_ALIGN int32_t rows_[kLanes * kLanes];
};

// Sums by elements of a group.
using GroupSums = float[kLanes * kLanes];
// Sums by columns.
using NarrowSums = float[kLanes];

// Distance at which memory is prefetched ahead of a vector.
inline constexpr int64_t kNarrowPrefetchBytes = 1024;

// The first `count` elements of `from`, and zeros.
template <typename T>
HWY_INLINE FloatVector LoadNarrow(const T* from, int64_t count) {
  const FloatTag d;
  hwy::Prefetch(from + kNarrowPrefetchBytes / sizeof(T));
  return count >= kLanes ? LoadFloats(d, from) : LoadFloatsPartial(d, from, count, T{});
}

// `depth` rows of b, and a's elements that meet them, which are adjacent.
template <typename A, typename T>
struct NarrowTerms {
  Matrix<A> a;
  const T* b;
  int64_t depth;
};

// Adds what a group contributes to the sums of R rows of a.
template <int R, typename A, typename T>
HWY_INLINE void AddGroup(const NarrowGroup& group, const NarrowTerms<A, T>& terms,
                         GroupSums* sums) {
  const FloatTag d;
  FloatVector rows[R];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) rows[r] = LoadNarrow(terms.a.At(r, 0).data, terms.depth);
  const int64_t count = terms.depth * group.vectors();
  for (int64_t v = 0; v * kLanes < count; ++v) {
    const FloatVector taken = LoadNarrow(terms.b + v * kLanes, count - v * kLanes);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      float* const sum = sums[r] + v * kLanes;
      hn::Store(hn::MulAdd(group.Spread(rows[r], v), taken, hn::Load(d, sum)), d, sum);
    }
  }
}

template <int R, typename A, typename T>
HWY_INLINE void AddGroups(const NarrowGroup& group, const NarrowTerms<A, T>& terms,
                          NarrowSums* sums) {
  HWY_ALIGN GroupSums parts[R];
  const int64_t columns = group.vectors();
  for (int r = 0; r < R; ++r) std::fill(parts[r], parts[r] + columns * kLanes, 0.0f);
  for (int64_t p = 0; p < terms.depth; p += kLanes)
    AddGroup<R>(group,
                NarrowTerms<A, T>{terms.a.At(0, p), terms.b + p * columns,
                                  std::min<int64_t>(kLanes, terms.depth - p)},
                parts);
  for (int r = 0; r < R; ++r)
    for (int64_t i = 0; i < kLanes; ++i)
      for (int64_t j = 0; j < columns; ++j) sums[r][j] += parts[r][i * columns + j];
}

// Adds to R rows of sums what `x`, up to kNarrowDepth deep, contributes.
template <int R, typename T>
void AddNarrow(const NarrowGroup& group, const Strip<T>& x, NarrowSums* sums) {
  NarrowSums parts[R] = {};
  if (x.a.column_stride == 1) {
    AddGroups<R>(group, NarrowTerms<T, T>{x.a, x.b.data, x.depth}, parts);
  } else {
    HWY_ALIGN float rows[R][kNarrowDepth];
    LoadRowsOfA(x.a, x.depth, rows);
    AddGroups<R>(group, NarrowTerms<float, T>{{rows[0], kNarrowDepth, 1}, x.b.data, x.depth},
                 parts);
  }
  for (int r = 0; r < R; ++r)
    for (int64_t j = 0; j < x.columns; ++j) sums[r][j] += parts[r][j];
}

// AddNarrow for a number of rows known at run time, 1 to R.
template <int R, typename T>
void AddNarrowOf(int64_t rows, const NarrowGroup& group, const Strip<T>& x, NarrowSums* sums) {
  if (rows < R) {
    if constexpr (R > 1) return AddNarrowOf<R - 1>(rows, group, x, sums);
  }
  AddNarrow<R>(group, x, sums);
}

// Shorter sums do not repay the additions from lane to lane at their end.
inline constexpr int64_t kNarrowDepthMin = 8 * kLanes;

template <typename T>
bool IsNarrow(const Strip<T>& x) {
  return x.b.column_stride == 1 && x.b.row_stride == x.columns && x.columns < kLanes &&
         x.depth >= kNarrowDepthMin;
}

// REQUIRES: IsNarrow(x), rows <= kRowsAcrossKMax.
template <typename T>
void MultiplyNarrow(int64_t rows, const Strip<T>& x) {
  WARPCALL_DCHECK(IsNarrow(x) && rows <= kRowsAcrossKMax, rows, x.columns, x.depth);
  HWY_ALIGN NarrowSums sums[kRowsAcrossKMax] = {};
  const NarrowGroup group(x.columns);
  for (int64_t p = 0; p < x.depth; p += kNarrowDepth) {
    if (x.StopsBefore(p)) return;
    Strip<T> part = x;
    part.b = x.b.At(p, 0);
    part.depth = std::min(kNarrowDepth, x.depth - p);
    for (int64_t first = 0; first < rows; first += kRowsPerPass) {
      part.a = x.a.At(first, p);
      AddNarrowOf<kRowsPerPass>(std::min<int64_t>(kRowsPerPass, rows - first), group, part,
                                sums + first);
    }
  }
  for (int64_t r = 0; r < rows; ++r) FinishRow(x.finish, sums[r], x.columns, x.c + r * x.c_stride);
}

}  // namespace warpcall::matmul::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
