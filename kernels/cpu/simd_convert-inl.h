// Vectors of floats from and to memory of any of the three data types, for every target of Highway.
// Rounding is to nearest, ties to even, as in kernels/common/half.h, which tests hold it against.
// (Highway 1.0.3's own conversion to bfloat16 truncates, and its float16 without F16C knows neither
// infinity nor NaN.)

// Once per target: the guard toggles.
#if defined(WARPCALL_KERNELS_CPU_SIMD_CONVERT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WARPCALL_KERNELS_CPU_SIMD_CONVERT_INL_H_
#undef WARPCALL_KERNELS_CPU_SIMD_CONVERT_INL_H_
#else
#define WARPCALL_KERNELS_CPU_SIMD_CONVERT_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "proto/common/half.h"

HWY_BEFORE_NAMESPACE();
namespace warpcall::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

template <class D>
using Bits = hn::Vec<hn::RebindToUnsigned<D>>;

template <class D>
HWY_INLINE hn::Vec<D> FromBits(D d, BFloat16, Bits<D> bits) {
  return hn::BitCast(d, hn::ShiftLeft<16>(bits));
}

// As ToFloat(Float16): the magnitude moved into place is 2^-112 too small, subnormals included.
template <class D>
HWY_INLINE hn::Vec<D> FromBits(D d, Float16, Bits<D> bits) {
  const hn::RebindToUnsigned<D> du;
  const hn::RebindToSigned<D> di;
  const auto magnitude = hn::And(bits, hn::Set(du, 0x7FFFu));
  const auto sign = hn::ShiftLeft<16>(hn::Xor(bits, magnitude));
  const auto in_place = hn::ShiftLeft<13>(magnitude);
  const auto finite = hn::BitCast(du, hn::Mul(hn::BitCast(d, in_place), hn::Set(d, 0x1p112f)));
  const auto special = hn::Or(in_place, hn::Set(du, 0x7F800000u));
  const auto is_special =
      hn::RebindMask(du, hn::Gt(hn::BitCast(di, magnitude), hn::Set(di, 0x7BFF)));
  return hn::BitCast(d, hn::Or(sign, hn::IfThenElse(is_special, special, finite)));
}

// The low 16 bits of each lane are the value.
template <class D>
HWY_INLINE Bits<D> ToBits(D /*d*/, BFloat16, hn::Vec<D> value) {
  const hn::RebindToUnsigned<D> du;
  const auto bits = hn::BitCast(du, value);
  const auto upper = hn::ShiftRight<16>(bits);
  const auto odd = hn::And(upper, hn::Set(du, 1u));
  const auto rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7FFFu))));
  const auto quiet = hn::Or(upper, hn::Set(du, 0x0040u));
  return hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(value)), quiet, rounded);
}

template <class D>
HWY_INLINE Bits<D> ToBits(D d, Float16, hn::Vec<D> value) {
  const hn::RebindToUnsigned<D> du;
  const hn::RebindToSigned<D> di;
  const auto bits = hn::BitCast(du, value);
  const auto magnitude = hn::And(bits, hn::Set(du, 0x7FFFFFFFu));
  const auto sign = hn::ShiftRight<16>(hn::Xor(bits, magnitude));
  const auto above = [&](uint32_t limit) HWY_ATTR {
    const auto signed_limit = hn::Set(di, static_cast<int32_t>(limit));
    return hn::RebindMask(du, hn::Gt(hn::BitCast(di, magnitude), signed_limit));
  };
  // Below 2^-14, adding 0.5 leaves the rounded multiple of 2^-24 in the low bits.
  const auto shifted = hn::BitCast(du, hn::Add(hn::BitCast(d, magnitude), hn::Set(d, 0.5f)));
  const auto subnormal = hn::Sub(shifted, hn::Set(du, 0x3F000000u));
  const auto odd = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(du, 1u));
  const auto rounded = hn::Add(hn::Add(magnitude, hn::Set(du, 0x0FFFu)), odd);
  const auto normal = hn::ShiftRight<13>(hn::Sub(rounded, hn::Set(du, (127u - 15u) << 23)));
  auto result = hn::IfThenElse(above(0x387FFFFFu), normal, subnormal);
  result = hn::IfThenElse(above(0x477FEFFFu), hn::Set(du, 0x7C00u), result);
  result = hn::IfThenElse(above(0x7F800000u), hn::Set(du, 0x7E00u), result);
  return hn::Or(result, sign);
}

// 1 if the target converts float16 in hardware (F16C comes with Highway's AVX2).
#undef WARPCALL_HARDWARE_FLOAT16
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2
#define WARPCALL_HARDWARE_FLOAT16 1
#else
#define WARPCALL_HARDWARE_FLOAT16 0
#endif

template <class D>
HWY_INLINE hn::Vec<D> LoadFloats(D d, const float* from) {
  return hn::LoadU(d, from);
}

template <class D, typename T>
HWY_INLINE hn::Vec<D> LoadFloats(D d, const T* from) {
#if WARPCALL_HARDWARE_FLOAT16
  if constexpr (std::is_same_v<T, Float16>) {
    const hn::Rebind<hwy::float16_t, D> dh;
    return hn::PromoteTo(d, hn::LoadU(dh, reinterpret_cast<const hwy::float16_t*>(from)));
  }
#endif
  const hn::RebindToUnsigned<D> du;
  const hn::Rebind<uint16_t, D> d16;
  const auto bits = hn::LoadU(d16, reinterpret_cast<const uint16_t*>(from));
  return FromBits(d, T{}, hn::PromoteTo(du, bits));
}

// `value` as half a vector of uint16_t.
template <typename T, class D>
HWY_INLINE hn::Vec<hn::Rebind<uint16_t, D>> Narrow(D d, hn::Vec<D> value) {
  const hn::Rebind<uint16_t, D> d16;
#if WARPCALL_HARDWARE_FLOAT16
  if constexpr (std::is_same_v<T, Float16>) {
    const hn::Rebind<hwy::float16_t, D> dh;
    return hn::BitCast(d16, hn::DemoteTo(dh, value));
  }
#endif
  return hn::DemoteTo(d16, hn::BitCast(hn::RebindToSigned<D>(), ToBits(d, T{}, value)));
}

// With kStream, `to` is aligned to what one call writes and the line goes around the caches; call
// hwy::FlushStream() before another thread reads it.
template <bool kStream = false, class D>
HWY_INLINE void StoreFloats(D d, hn::Vec<D> value, float* to) {
  if constexpr (kStream) {
    hn::Stream(value, d, to);
  } else {
    hn::StoreU(value, d, to);
  }
}

template <bool kStream = false, class D, typename T>
HWY_INLINE void StoreFloats(D d, hn::Vec<D> value, T* to) {
  const hn::Rebind<uint16_t, D> d16;
  if constexpr (kStream) {
    hn::Stream(Narrow<T>(d, value), d16, reinterpret_cast<uint16_t*>(to));
  } else {
    hn::StoreU(Narrow<T>(d, value), d16, reinterpret_cast<uint16_t*>(to));
  }
}

// 1 if one instruction leaves the memory of masked-out lanes untouched.
#undef WARPCALL_MASKED_MEMORY
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
#define WARPCALL_MASKED_MEMORY 1
#else
#define WARPCALL_MASKED_MEMORY 0
#endif

#if WARPCALL_MASKED_MEMORY
// Zeros behind `count` elements.
template <class D>
HWY_INLINE hn::Vec<D> LoadFirst(D d, const float* from, size_t count) {
  return hn::MaskedLoad(hn::FirstN(d, count), d, from);
}

template <class D, typename T>
HWY_INLINE hn::Vec<D> LoadFirst(D d, const T* from, size_t count) {
  const hn::Rebind<uint16_t, D> d16;
  const auto bits =
      hn::MaskedLoad(hn::FirstN(d16, count), d16, reinterpret_cast<const uint16_t*>(from));
  if constexpr (std::is_same_v<T, Float16>) {
    const hn::Rebind<hwy::float16_t, D> dh;
    return hn::PromoteTo(d, hn::BitCast(dh, bits));
  } else {
    return FromBits(d, T{}, hn::PromoteTo(hn::RebindToUnsigned<D>(), bits));
  }
}
#endif

// 0 < count < Lanes(d): touches that many elements. The other lanes hold `fill`.
template <class D, typename T>
HWY_INLINE hn::Vec<D> LoadFloatsPartial(D d, const T* from, size_t count, T fill) {
#if WARPCALL_MASKED_MEMORY
  return hn::IfThenElse(hn::FirstN(d, count), LoadFirst(d, from, count), hn::Set(d, ToFloat(fill)));
#else
  HWY_ALIGN T lanes[hn::MaxLanes(D())];
  for (size_t i = count; i < hn::Lanes(d); ++i) lanes[i] = fill;
  std::memcpy(lanes, from, count * sizeof(T));
  return LoadFloats(d, lanes);
#endif
}

template <class D, typename T>
HWY_INLINE void StoreFloatsPartial(D d, hn::Vec<D> value, T* to, size_t count) {
#if WARPCALL_MASKED_MEMORY
  if constexpr (sizeof(T) == sizeof(float)) {
    hn::BlendedStore(value, hn::FirstN(d, count), d, to);
  } else {
    const hn::Rebind<uint16_t, D> d16;
    hn::BlendedStore(Narrow<T>(d, value), hn::FirstN(d16, count), d16,
                     reinterpret_cast<uint16_t*>(to));
  }
#else
  HWY_ALIGN T lanes[hn::MaxLanes(D())];
  StoreFloats(d, value, lanes);
  std::memcpy(to, lanes, count * sizeof(T));
#endif
}

// y[j] = value(j, count) for vectors of `count` elements from j on, fewer at the ends.
template <bool kStream, typename T, typename Value>
HWY_INLINE void WriteFloats(T* y, size_t n, Value value) {
  const hn::ScalableTag<float> d;
  const size_t lanes = hn::Lanes(d);
  size_t j = 0;
  if (kStream) {  // up to the first aligned element
    const size_t vector_bytes = lanes * sizeof(T);
    const size_t past = reinterpret_cast<uintptr_t>(y) % vector_bytes;
    if (past != 0) {
      j = std::min((vector_bytes - past) / sizeof(T), n);
      StoreFloatsPartial(d, value(0, j), y, j);
    }
  }
  for (; j + lanes <= n; j += lanes) StoreFloats<kStream>(d, value(j, lanes), y + j);
  if (j < n) StoreFloatsPartial(d, value(j, n - j), y + j, n - j);
}

}  // namespace warpcall::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
