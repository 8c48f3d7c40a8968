// softmax along an axis that is not the last: lanes are neighbouring columns, so every load is
// contiguous. A few table rows at a time stay in the first-level cache, where they are read for the
// maximum and again for the sum; memory is read twice in all.

#if defined(WARPCALL_KERNELS_SOFTMAX_SIMD_COLUMNS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WARPCALL_KERNELS_SOFTMAX_SIMD_COLUMNS_INL_H_
#undef WARPCALL_KERNELS_SOFTMAX_SIMD_COLUMNS_INL_H_
#else
#define WARPCALL_KERNELS_SOFTMAX_SIMD_COLUMNS_INL_H_
#endif

#include <algorithm>

#include "hwy/highway.h"
#include "kernels/softmax/softmax_simd_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace warpcall::softmax::HWY_NAMESPACE {

// Elements of the axis that are taken together: 64 x kColumns floats are 16 KiB, and 64 is how many
// pages the first level of a current core's TLB holds at least.
inline constexpr int64_t kAxisBlock = 64;
inline constexpr int64_t kAxisPerLook = kElementsPerLook / kColumns;
static_assert(kAxisPerLook % kAxisBlock == 0);

// A vector's worth of columns, the first `count` lanes of it real. x and y point at element 0 of
// the axis.
template <typename T>
struct Lanes {
  const T* x;
  T* y;
  int64_t stride;
  size_t count;

  HWY_INLINE FloatVec Load(int64_t j) const {
    const Floats d;
    return count == hn::Lanes(d) ? simd::LoadFloats(d, x + j * stride)
                                 : simd::LoadFloatsPartial(d, x + j * stride, count, Padding<T>());
  }

  HWY_INLINE void Store(int64_t j, FloatVec value) const {
    const Floats d;
    if (count == hn::Lanes(d)) {
      simd::StoreFloats(d, value, y + j * stride);
    } else {
      simd::StoreFloatsPartial(d, value, y + j * stride, count);
    }
  }
};

// Elements [first, last) of the axis.
struct AxisRange {
  int64_t first;
  int64_t last;
};

// Takes elements of the axis into the running maximum and sum.
template <typename T>
HWY_INLINE void Reduce(const Lanes<T>& lanes, AxisRange range, float* max, float* sum) {
  const Floats d;
  const FloatVec old_max = hn::Load(d, max);
  FloatVec new_max = old_max;
  for (int64_t j = range.first; j < range.last; ++j) new_max = hn::Max(new_max, lanes.Load(j));
  FloatVec total = hn::Zero(d);
  for (int64_t j = range.first; j < range.last; ++j) {
    total = hn::Add(total, simd::ExpNotPositive(d, hn::Sub(lanes.Load(j), new_max)));
  }
  const FloatVec shrink = simd::ExpNotPositive(d, hn::Sub(old_max, new_max));
  hn::Store(new_max, d, max);
  hn::Store(hn::MulAdd(hn::Load(d, sum), shrink, total), d, sum);
}

template <typename T>
HWY_INLINE void Write(const Lanes<T>& lanes, AxisRange range, const float* max,
                      const float* scale) {
  const Floats d;
  const FloatVec vmax = hn::Load(d, max);
  const FloatVec vscale = hn::Load(d, scale);
  for (int64_t j = range.first; j < range.last; ++j) {
    lanes.Store(j, hn::Mul(simd::ExpNotPositive(d, hn::Sub(lanes.Load(j), vmax)), vscale));
  }
}

template <typename T>
void ColumnBlock(const T* x, T* y, const Tensors& tensors, int64_t columns) {
  const View& view = tensors.view;
  const Floats d;
  const int64_t step = static_cast<int64_t>(hn::Lanes(d));
  constexpr size_t kRoom = kColumns + hn::MaxLanes(Floats());
  HWY_ALIGN float max[kRoom];
  HWY_ALIGN float sum[kRoom];
  std::fill_n(max, kRoom, kLowest);
  std::fill_n(sum, kRoom, 0.0f);
  const auto for_each_block = [&](auto body) {
    for (int64_t first = 0; first < view.n; first += kAxisBlock) {
      if (first > 0 && first % kAxisPerLook == 0 && IsSet(tensors.stop)) return;
      const AxisRange range{first, std::min(first + kAxisBlock, view.n)};
      for (int64_t i = 0; i < columns; i += step) {
        const size_t count = static_cast<size_t>(std::min(step, columns - i));
        body(Lanes<T>{x + i, y + i, view.inner, count}, i, range);
      }
    }
  };
  for_each_block([&](const Lanes<T>& lanes, int64_t i, AxisRange range)
                     HWY_ATTR { Reduce(lanes, range, max + i, sum + i); });
  for (int64_t i = 0; i < columns; ++i) sum[i] = 1.0f / sum[i];
  for_each_block([&](const Lanes<T>& lanes, int64_t i, AxisRange range)
                     HWY_ATTR { Write(lanes, range, max + i, sum + i); });
}

void Columns(const ColumnRange& range) {
  const Tensors& t = range.tensors;
  DispatchDataType(t.data_type, [&]<typename T>(T) {
    const int64_t offset = range.outer * t.view.n * t.view.inner + range.first;
    ColumnBlock(static_cast<const T*>(t.x) + offset, static_cast<T*>(t.y) + offset, t,
                range.last - range.first);
  });
}

}  // namespace warpcall::softmax::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
