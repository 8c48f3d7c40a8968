// softmax along contiguous rows. Up to kBlock elements a row is read once: its exponentials wait as
// floats in a buffer on the stack, and the last step scales them. Longer rows go block by block,
// each with a maximum of its own (the online softmax of Milakov and Gimelshein, 2018), and are read
// a second time to be written.

#if defined(WARPCALL_KERNELS_SOFTMAX_SIMD_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WARPCALL_KERNELS_SOFTMAX_SIMD_ROWS_INL_H_
#undef WARPCALL_KERNELS_SOFTMAX_SIMD_ROWS_INL_H_
#else
#define WARPCALL_KERNELS_SOFTMAX_SIMD_ROWS_INL_H_
#endif

#include <algorithm>
#include <limits>

#include "hwy/highway.h"
#include "kernels/cpu/simd_convert-inl.h"
#include "kernels/cpu/simd_math-inl.h"
#include "kernels/softmax/softmax_simd.h"
#include "proto/common/dispatch.h"

HWY_BEFORE_NAMESPACE();
namespace warpcall::softmax::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
namespace simd = warpcall::cpu::HWY_NAMESPACE;

using Floats = hn::ScalableTag<float>;
using FloatVec = hn::Vec<Floats>;

// Lanes past the end: no maximum, and exp gives 0.
template <typename T>
inline T Padding() {
  return FromFloat<T>(-std::numeric_limits<float>::infinity());
}

// NaN may be lost here; it comes back with the sum.
template <typename T>
HWY_INLINE float MaxOf(const T* x, size_t n) {
  const Floats d;
  const size_t lanes = hn::Lanes(d);
  FloatVec m0 = hn::Set(d, kLowest), m1 = m0, m2 = m0, m3 = m0;
  size_t j = 0;
  for (; j + 4 * lanes <= n; j += 4 * lanes) {
    m0 = hn::Max(m0, simd::LoadFloats(d, x + j));
    m1 = hn::Max(m1, simd::LoadFloats(d, x + j + lanes));
    m2 = hn::Max(m2, simd::LoadFloats(d, x + j + 2 * lanes));
    m3 = hn::Max(m3, simd::LoadFloats(d, x + j + 3 * lanes));
  }
  for (; j + lanes <= n; j += lanes) m0 = hn::Max(m0, simd::LoadFloats(d, x + j));
  if (j < n) m0 = hn::Max(m0, simd::LoadFloatsPartial(d, x + j, n - j, Padding<T>()));
  return hn::GetLane(hn::MaxOfLanes(d, hn::Max(hn::Max(m0, m1), hn::Max(m2, m3))));
}

// The sum of exp(x - max) in two chains a lane; with kKeep the terms go to `terms`, which has room
// for a vector more than n.
template <bool kKeep, typename T>
HWY_INLINE float SumOfChains(const T* x, size_t n, float max, float* terms) {
  const Floats d;
  const size_t lanes = hn::Lanes(d);
  const FloatVec vmax = hn::Set(d, max);
  FloatVec s0 = hn::Zero(d), s1 = s0;
  size_t j = 0;
  const auto term = [&](FloatVec value, size_t at) HWY_ATTR {
    const FloatVec e = simd::ExpNotPositive(d, hn::Sub(value, vmax));
    if (kKeep) hn::Store(e, d, terms + at);
    return e;
  };
  for (; j + 2 * lanes <= n; j += 2 * lanes) {
    s0 = hn::Add(s0, term(simd::LoadFloats(d, x + j), j));
    s1 = hn::Add(s1, term(simd::LoadFloats(d, x + j + lanes), j + lanes));
  }
  for (; j + lanes <= n; j += lanes) s0 = hn::Add(s0, term(simd::LoadFloats(d, x + j), j));
  if (j < n) s1 = hn::Add(s1, term(simd::LoadFloatsPartial(d, x + j, n - j, Padding<T>()), j));
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(s0, s1)));
}

// As SumOfChains, for any n: longer chains of like terms may be off by more than the bound.
template <bool kKeep, typename T>
HWY_INLINE float SumOfExp(const T* x, size_t n, float max, float* terms) {
  const size_t chains = 2 * kTermsPerChain * hn::Lanes(Floats());
  float sum = 0;
  for (size_t j = 0; j < n; j += chains)
    sum += SumOfChains<kKeep>(x + j, std::min(chains, n - j), max, kKeep ? terms + j : nullptr);
  return sum;
}

template <bool kStream, typename T>
HWY_INLINE void ShortRow(const T* x, T* y, size_t n) {
  const Floats d;
  HWY_ALIGN float terms[kBlock + hn::MaxLanes(Floats())];
  const float sum = SumOfExp<true>(x, n, MaxOf(x, n), terms);
  const FloatVec scale = hn::Set(d, 1.0f / sum);
  simd::WriteFloats<kStream>(
      y, n, [&](size_t j, size_t) HWY_ATTR { return hn::Mul(hn::LoadU(d, terms + j), scale); });
}

template <typename T>
HWY_INLINE Partial PartialOf(const T* x, size_t n) {
  const float max = MaxOf(x, n);
  return {max, SumOfExp<false>(x, n, max, nullptr)};
}

template <bool kStream, typename T>
HWY_INLINE void WriteScaled(const T* x, T* y, size_t n, Partial row) {
  const Floats d;
  const FloatVec max = hn::Set(d, row.max);
  const FloatVec scale = hn::Set(d, 1.0f / row.sum);
  const size_t lanes = hn::Lanes(d);
  simd::WriteFloats<kStream>(y, n, [&](size_t j, size_t count) HWY_ATTR {
    const FloatVec value = count == lanes ? simd::LoadFloats(d, x + j)
                                          : simd::LoadFloatsPartial(d, x + j, count, Padding<T>());
    return hn::Mul(simd::ExpNotPositive(d, hn::Sub(value, max)), scale);
  });
}

template <bool kStream, typename T>
void Row(const T* x, T* y, size_t n, const StopFlag* stop) {
  if (n <= kBlock) return ShortRow<kStream>(x, y, n);
  Partial row{kLowest, 0};
  for (size_t j = 0; j < n; j += kBlock) {
    if (j % kElementsPerLook == 0 && IsSet(stop)) return;
    row = Merge(row, PartialOf(x + j, std::min<size_t>(kBlock, n - j)));
  }
  for (size_t j = 0; j < n; j += kElementsPerLook) {
    if (IsSet(stop)) return;
    WriteScaled<kStream>(x + j, y + j, std::min<size_t>(kElementsPerLook, n - j), row);
  }
}

void Rows(const RowRange& range) {
  const Tensors& t = range.tensors;
  const int64_t n = t.view.n;
  DispatchDataType(t.data_type, [&]<typename T>(T) {
    for (int64_t row = range.first; row < range.last; ++row) {
      const T* const x = static_cast<const T*>(t.x) + row * n;
      T* const y = static_cast<T*>(t.y) + row * n;
      t.stream ? Row<true>(x, y, n, t.stop) : Row<false>(x, y, n, t.stop);
    }
  });
  if (t.stream) hwy::FlushStream();
}

// The two passes over rows that several threads share.
void ReducePiece(const RowPiece& piece) {
  const Tensors& t = piece.tensors;
  DispatchDataType(t.data_type, [&]<typename T>(T) HWY_ATTR {
    const T* const x = static_cast<const T*>(t.x) + piece.row * t.view.n;
    *piece.partial = PartialOf(x + piece.first, piece.last - piece.first);
  });
}

void WritePiece(const RowPiece& piece) {
  const Tensors& t = piece.tensors;
  DispatchDataType(t.data_type, [&]<typename T>(T) HWY_ATTR {
    const int64_t offset = piece.row * t.view.n + piece.first;
    const T* const x = static_cast<const T*>(t.x) + offset;
    T* const y = static_cast<T*>(t.y) + offset;
    const int64_t n = piece.last - piece.first;
    t.stream ? WriteScaled<true>(x, y, n, *piece.partial)
             : WriteScaled<false>(x, y, n, *piece.partial);
  });
  if (t.stream) hwy::FlushStream();
}

}  // namespace warpcall::softmax::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
