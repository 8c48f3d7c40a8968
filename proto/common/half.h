// Storage types of 16 bits and their conversions, in portable C++ (no Abseil: CUDA files include
// this).
#pragma once

#include <bit>
#include <cstdint>

namespace warpcall {

// IEEE 754 binary16.
struct Float16 {
  uint16_t bits;
};

// The upper half of a binary32.
struct BFloat16 {
  uint16_t bits;
};

inline float ToFloat(float value) { return value; }

inline float ToFloat(BFloat16 value) {
  return std::bit_cast<float>(static_cast<uint32_t>(value.bits) << 16);
}

inline float ToFloat(Float16 value) {
  const uint32_t sign = static_cast<uint32_t>(value.bits & 0x8000u) << 16;
  const uint32_t magnitude = value.bits & 0x7FFFu;
  if (magnitude >= 0x7C00u)  // infinity or NaN: widen the payload
    return std::bit_cast<float>(sign | 0x7F800000u | ((magnitude & 0x3FFu) << 13));
  if (magnitude < 0x0400u)  // zero or subnormal: magnitude x 2^-24 is exact in float
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude * 0x1p-24f));
  return std::bit_cast<float>(sign | ((magnitude << 13) + ((127u - 15u) << 23)));
}

// The functions below round to nearest, ties to even; NaN stays NaN, overflow becomes infinity.
template <typename T>
T FromFloat(float value);

template <>
inline float FromFloat<float>(float value) {
  return value;
}

template <>
inline BFloat16 FromFloat<BFloat16>(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u)  // NaN: set the quiet bit so that truncation keeps it
    return {static_cast<uint16_t>((bits >> 16) | 0x0040u)};
  return {static_cast<uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16)};
}

template <>
inline Float16 FromFloat<Float16>(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint16_t sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
  const uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return {static_cast<uint16_t>(sign | 0x7E00u)};
  // 65520 is halfway between the largest float16 and the power of two above it.
  if (magnitude >= 0x477FF000u) return {static_cast<uint16_t>(sign | 0x7C00u)};
  if (magnitude < 0x38800000u) {  // below 2^-14: adding 0.5 leaves the rounded multiple of 2^-24 in
                                  // the low bits
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return {static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3F000000u))};
  }
  const uint32_t rounded = magnitude + 0x0FFFu + ((magnitude >> 13) & 1u);
  return {static_cast<uint16_t>(sign | ((rounded - ((127u - 15u) << 23)) >> 13))};
}

}  // namespace warpcall
