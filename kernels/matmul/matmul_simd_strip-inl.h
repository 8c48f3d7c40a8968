// A strip of c, the product of few rows of a and some columns of b: the part that its ways of
// multiplication share. Included once per target, inside hwy/foreach_target.h.
#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
#include "kernels/matmul/matmul_simd_blocked-inl.h"

#if defined(WARPCALL_KERNELS_MATMUL_SIMD_STRIP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WARPCALL_KERNELS_MATMUL_SIMD_STRIP_INL_H_
#undef WARPCALL_KERNELS_MATMUL_SIMD_STRIP_INL_H_
#else
#define WARPCALL_KERNELS_MATMUL_SIMD_STRIP_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace warpcall::matmul::HWY_NAMESPACE {

// Most rows of a in a strip where k is not adjacent in b.
inline constexpr int kRowsAcrossKMax = 24;
// Rows of a that meet a chunk of b at once. For more rows the chunk lies in the middle cache then.
inline constexpr int kRowsPerPass = 8;
inline constexpr int64_t kChunkDepth = 512;
// Depth between two looks at the stop flag: 16 MiB or more of a strip, some milliseconds.
inline constexpr int64_t kDepthPerLook = 32 * kChunkDepth;

// c[rows, columns] = a[rows, depth] x b[depth, columns].
template <typename T>
struct Strip {
  Matrix<T> a;
  Matrix<T> b;
  T* c;
  int64_t c_stride;
  int64_t columns;
  int64_t depth;
  const StopFlag* stop;
  Finish<T> finish;

  bool StopsBefore(int64_t p) const { return p > 0 && p % kDepthPerLook == 0 && IsSet(stop); }
};

// Zeros behind `depth` up to a whole vector.
template <int R, int64_t kDepth, typename T>
void LoadRowsOfA(const Matrix<T>& a, int64_t depth, float (&rows)[R][kDepth]) {
  for (int r = 0; r < R; ++r) {
    const T* const row = a.data + r * a.row_stride;
    if (a.column_stride == 1) {
      RowToFloat(row, depth, rows[r]);
    } else {
      for (int64_t p = 0; p < depth; ++p) rows[r][p] = ToFloat(row[p * a.column_stride]);
    }
    std::fill(rows[r] + depth, rows[r] + hwy::RoundUpTo(depth, kLanes), 0.0f);
  }
}

}  // namespace warpcall::matmul::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
