// layernorm and rmsnorm along rows. Up to kBlock elements a row is read once: its values wait as
// floats in a buffer on the stack while their mean, their squares and the results are computed.
// Longer rows go block by block and are read a second time to be written. The sum of squares shows
// a row whose squares leave float32's range; the row is then begun anew with a scale.

#if defined(WARPCALL_KERNELS_NORM_SIMD_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WARPCALL_KERNELS_NORM_SIMD_ROWS_INL_H_
#undef WARPCALL_KERNELS_NORM_SIMD_ROWS_INL_H_
#else
#define WARPCALL_KERNELS_NORM_SIMD_ROWS_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <optional>

#include "hwy/highway.h"
#include "kernels/cpu/simd_convert-inl.h"
#include "kernels/norm/norm_simd.h"
#include "proto/common/dispatch.h"

HWY_BEFORE_NAMESPACE();
namespace warpcall::norm::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
namespace simd = warpcall::cpu::HWY_NAMESPACE;

using Floats = hn::ScalableTag<float>;
using FloatVec = hn::Vec<Floats>;

// Additions to a vector one after another, before what they come to is added to the rest: where one
// element is far from all others, their squares are alike, and so are the roundings of their sums.
inline constexpr size_t kRun = 16;

// The sum of term(values[j]); lanes past the end have `fill`, of which term is 0.
template <typename Term>
HWY_INLINE float SumOf(const float* values, size_t n, float fill, Term term) {
  const Floats d;
  const size_t lanes = hn::Lanes(d);
  FloatVec sum = hn::Zero(d);
  size_t j = 0;
  while (j + 4 * lanes <= n) {
    const size_t end = j + std::min(kRun * 4 * lanes, (n - j) / (4 * lanes) * (4 * lanes));
    FloatVec s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0;
    for (; j < end; j += 4 * lanes) {
      s0 = hn::Add(s0, term(hn::LoadU(d, values + j)));
      s1 = hn::Add(s1, term(hn::LoadU(d, values + j + lanes)));
      s2 = hn::Add(s2, term(hn::LoadU(d, values + j + 2 * lanes)));
      s3 = hn::Add(s3, term(hn::LoadU(d, values + j + 3 * lanes)));
    }
    sum = hn::Add(sum, hn::Add(hn::Add(s0, s1), hn::Add(s2, s3)));
  }
  for (; j + lanes <= n; j += lanes) sum = hn::Add(sum, term(hn::LoadU(d, values + j)));
  if (j < n) sum = hn::Add(sum, term(simd::LoadFloatsPartial(d, values + j, n - j, fill)));
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

// values[j] = x[j] x factor; `values` has room for a vector more than n.
template <typename T>
HWY_INLINE void Fetch(const T* x, size_t n, float factor, float* values) {
  const Floats d;
  const size_t lanes = hn::Lanes(d);
  const FloatVec by = hn::Set(d, factor);
  size_t j = 0;
  for (; j + lanes <= n; j += lanes)
    hn::StoreU(hn::Mul(simd::LoadFloats(d, x + j), by), d, values + j);
  if (j < n) {
    const T zero = FromFloat<T>(0);
    hn::StoreU(hn::Mul(simd::LoadFloatsPartial(d, x + j, n - j, zero), by), d, values + j);
  }
}

HWY_INLINE float SquaresAround(float mean, const float* values, size_t n) {
  const FloatVec middle = hn::Set(Floats(), mean);
  return SumOf(values, n, mean, [middle](FloatVec value) HWY_ATTR {
    const FloatVec distance = hn::Sub(value, middle);
    return hn::Mul(distance, distance);
  });
}

HWY_INLINE Partial PartialOf(const float* values, size_t n, bool centered) {
  Partial partial{.count = static_cast<float>(n)};
  if (centered)
    partial.mean =
        SumOf(values, n, 0, [](FloatVec value) HWY_ATTR { return value; }) / partial.count;
  partial.squares = SquaresAround(partial.mean, values, n);
  // The distances of values that are close together give the rounding error of their mean. In a row
  // of one value the distances are nothing else.
  if (AreCloseTogether(partial.mean, partial.squares, partial.count)) {
    const FloatVec middle = hn::Set(Floats(), partial.mean);
    partial.mean += SumOf(values, n, partial.mean,
                          [middle](FloatVec value) HWY_ATTR { return hn::Sub(value, middle); }) /
                    partial.count;
    partial.squares = SquaresAround(partial.mean, values, n);
  }
  return partial;
}

// The largest |x| that is a number; NaN comes back with the sums.
template <typename T>
HWY_INLINE float LargestOf(const T* x, size_t n) {
  float largest = 0;
  for (size_t j = 0; j < n; ++j) largest = std::max(largest, std::fabs(ToFloat(x[j])));
  return largest;
}

HWY_INLINE Normalizer NormalizerOf(const Partial& row, const View& view, const Scale& scale) {
  const float square = row.squares / static_cast<float>(view.n);
  return {scale.factor, row.mean, 1 / std::sqrt(square + scale.epsilon)};
}

// product + shift, which may be finite where the product is not. Targets without a fused
// instruction round, and overflow, in between.
HWY_INLINE FloatVec MultiplyAdd(FloatVec value, FloatVec weight, FloatVec bias) {
  const Floats d;
  const FloatVec sum = hn::MulAdd(value, weight, bias);
#if !HWY_NATIVE_FMA
  if (HWY_UNLIKELY(!hn::AllTrue(d, hn::IsFinite(sum)))) {
    HWY_ALIGN float v[hn::MaxLanes(Floats())];
    HWY_ALIGN float w[hn::MaxLanes(Floats())];
    HWY_ALIGN float b[hn::MaxLanes(Floats())];
    hn::Store(value, d, v);
    hn::Store(weight, d, w);
    hn::Store(bias, d, b);
    for (size_t i = 0; i < hn::Lanes(d); ++i)
      v[i] = static_cast<float>(double{v[i]} * double{w[i]} + double{b[i]});
    return hn::Load(d, v);
  }
#endif
  return sum;
}

// Elements [first, first + n) of a row; `value(j, count)` brings x x factor of the j-th and those
// beside it.
template <typename T>
struct Target {
  const T* weight;
  const T* bias;  // null: none
  T* y;
};

template <bool kStream, typename T, typename Value>
HWY_INLINE void WriteNormalized(const Target<T>& to, size_t n, const Normalizer& by, Value value) {
  const Floats d;
  const size_t lanes = hn::Lanes(d);
  const FloatVec mean = hn::Set(d, by.mean);
  const FloatVec reciprocal = hn::Set(d, by.reciprocal);
  const T zero = FromFloat<T>(0);
  const auto load = [&](const T* from, size_t count) HWY_ATTR {
    return count == lanes ? simd::LoadFloats(d, from)
                          : simd::LoadFloatsPartial(d, from, count, zero);
  };
  simd::WriteFloats<kStream>(to.y, n, [&](size_t j, size_t count) HWY_ATTR {
    const FloatVec normalized = hn::Mul(hn::Sub(value(j, count), mean), reciprocal);
    const FloatVec weight = load(to.weight + j, count);
    if (to.bias == nullptr) return hn::Mul(normalized, weight);
    return MultiplyAdd(normalized, weight, load(to.bias + j, count));
  });
}

template <bool kStream, typename T>
HWY_INLINE void ShortRow(const T* x, const Target<T>& to, const View& view) {
  const Floats d;
  HWY_ALIGN float values[kBlock + hn::MaxLanes(Floats())];
  const auto n = static_cast<size_t>(view.n);
  Scale scale{1, static_cast<float>(view.epsilon)};
  Fetch(x, n, scale.factor, values);
  Partial row = PartialOf(values, n, view.centered);
  if (HWY_UNLIKELY(!IsInRange(row.squares, scale.epsilon))) {
    scale = ScaleFor(LargestOf(x, n), view.epsilon);
    Fetch(x, n, scale.factor, values);
    row = PartialOf(values, n, view.centered);
  }
  WriteNormalized<kStream>(to, n, NormalizerOf(row, view, scale),
                           [&](size_t j, size_t) HWY_ATTR { return hn::LoadU(d, values + j); });
}

// Statistics of up to kBlock elements.
template <typename T>
HWY_INLINE Partial PartialOfBlock(const T* x, size_t n, float factor, bool centered) {
  HWY_ALIGN float values[kBlock + hn::MaxLanes(Floats())];
  Fetch(x, n, factor, values);
  return PartialOf(values, n, centered);
}

// Returns nullopt if `stop` was set.
template <typename T>
HWY_INLINE std::optional<Partial> ReduceRow(const T* x, const View& view, float factor,
                                            const StopFlag* stop) {
  Partial row;
  for (int64_t j = 0; j < view.n; j += kBlock) {
    if (j % kElementsPerLook == 0 && IsSet(stop)) return std::nullopt;
    const auto n = static_cast<size_t>(std::min(kBlock, view.n - j));
    const Partial block = PartialOfBlock(x + j, n, factor, view.centered);
    row = j == 0 ? block : Merge(row, block);
  }
  return row;
}

template <typename T>
HWY_INLINE bool FindScale(const T* x, const View& view, const StopFlag* stop, Scale* scale) {
  float largest = 0;
  for (int64_t j = 0; j < view.n; j += kElementsPerLook) {
    if (IsSet(stop)) return false;
    largest = std::max(
        largest, LargestOf(x + j, static_cast<size_t>(std::min(kElementsPerLook, view.n - j))));
  }
  *scale = ScaleFor(largest, view.epsilon);
  return true;
}

template <bool kStream, typename T>
HWY_INLINE void WriteBlock(const T* x, const Target<T>& to, size_t n, const Normalizer& by) {
  const Floats d;
  const FloatVec factor = hn::Set(d, by.factor);
  const size_t lanes = hn::Lanes(d);
  WriteNormalized<kStream>(to, n, by, [&](size_t j, size_t count) HWY_ATTR {
    const FloatVec value = count == lanes
                               ? simd::LoadFloats(d, x + j)
                               : simd::LoadFloatsPartial(d, x + j, count, FromFloat<T>(0));
    return hn::Mul(value, factor);
  });
}

template <typename T>
HWY_INLINE Target<T> TargetAt(const Tensors& t, int64_t row, int64_t column) {
  const T* const bias = static_cast<const T*>(t.bias);
  return {static_cast<const T*>(t.weight) + column, bias == nullptr ? nullptr : bias + column,
          static_cast<T*>(t.y) + row * t.view.n + column};
}

template <bool kStream, typename T>
void LongRow(const Tensors& t, int64_t index) {
  const View& view = t.view;
  const T* const x = static_cast<const T*>(t.x) + index * view.n;
  Scale scale{1, static_cast<float>(view.epsilon)};
  std::optional<Partial> row = ReduceRow(x, view, scale.factor, t.stop);
  if (row.has_value() && HWY_UNLIKELY(!IsInRange(row->squares, scale.epsilon))) {
    if (!FindScale(x, view, t.stop, &scale)) return;
    row = ReduceRow(x, view, scale.factor, t.stop);
  }
  if (!row.has_value()) return;
  const Normalizer by = NormalizerOf(*row, view, scale);
  for (int64_t j = 0; j < view.n; j += kElementsPerLook) {
    if (IsSet(t.stop)) return;
    const auto n = static_cast<size_t>(std::min(kElementsPerLook, view.n - j));
    WriteBlock<kStream>(x + j, TargetAt<T>(t, index, j), n, by);
  }
}

template <bool kStream, typename T>
void RowsOf(const RowRange& range) {
  const Tensors& t = range.tensors;
  const int64_t n = t.view.n;
  for (int64_t row = range.first; row < range.last; ++row) {
    if (n > kBlock) {
      LongRow<kStream, T>(t, row);
    } else {
      ShortRow<kStream>(static_cast<const T*>(t.x) + row * n, TargetAt<T>(t, row, 0), t.view);
    }
  }
}

void Rows(const RowRange& range) {
  DispatchDataType(range.tensors.data_type, [&]<typename T>(T) {
    range.tensors.stream ? RowsOf<true, T>(range) : RowsOf<false, T>(range);
  });
  if (range.tensors.stream) hwy::FlushStream();
}

// Rows that several threads share: the squares of their pieces; what those of a whole row say; and
// the results.
void ReducePiece(const RowPiece& piece) {
  const Tensors& t = piece.tensors;
  DispatchDataType(t.data_type, [&]<typename T>(T) HWY_ATTR {
    const T* const x = static_cast<const T*>(t.x) + piece.row * t.view.n + piece.first;
    const auto n = static_cast<size_t>(piece.last - piece.first);
    *piece.partial = PartialOfBlock(x, n, 1.0f, t.view.centered);
  });
}

// Computes the normalizer of a row whose pieces were merged in *piece.partial.
void FinishRow(const RowPiece& piece) {
  const Tensors& t = piece.tensors;
  DispatchDataType(t.data_type, [&]<typename T>(T) HWY_ATTR {
    const T* const x = static_cast<const T*>(t.x) + piece.row * t.view.n;
    Scale scale{1, static_cast<float>(t.view.epsilon)};
    std::optional<Partial> row = *piece.partial;
    if (!IsInRange(row->squares, scale.epsilon)) {
      if (!FindScale(x, t.view, t.stop, &scale)) return;
      row = ReduceRow(x, t.view, scale.factor, t.stop);
    }
    if (row.has_value()) *piece.normalizer = NormalizerOf(*row, t.view, scale);
  });
}

void WritePiece(const RowPiece& piece) {
  const Tensors& t = piece.tensors;
  DispatchDataType(t.data_type, [&]<typename T>(T) HWY_ATTR {
    const T* const x = static_cast<const T*>(t.x) + piece.row * t.view.n + piece.first;
    const Target<T> to = TargetAt<T>(t, piece.row, piece.first);
    const auto n = static_cast<size_t>(piece.last - piece.first);
    t.stream ? WriteBlock<true>(x, to, n, *piece.normalizer)
             : WriteBlock<false>(x, to, n, *piece.normalizer);
  });
  if (t.stream) hwy::FlushStream();
}

}  // namespace warpcall::norm::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
