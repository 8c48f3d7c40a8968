// Finds NaN in outputs, for implementations that correct a library's results.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "proto/common/half.h"

namespace warpcall::cpu {

template <typename T>
using Bits = std::conditional_t<sizeof(T) == 4, uint32_t, uint16_t>;

inline uint32_t BitsOf(const float& value) { return std::bit_cast<uint32_t>(value); }
inline uint16_t BitsOf(const Float16& value) { return value.bits; }
inline uint16_t BitsOf(const BFloat16& value) { return value.bits; }

// The sign bit alone, set when `value` is NaN: only then do the bits of the magnitude exceed
// infinity's and their difference wraps. No comparison, one width throughout and no copy of the
// struct, so that a loop over it vectorises even for SSE2.
template <typename T>
Bits<T> NanBit(const T& value) {
  constexpr auto kSign = static_cast<Bits<T>>(Bits<T>{1} << (8 * sizeof(T) - 1));
  const Bits<T> infinity = BitsOf(FromFloat<T>(std::numeric_limits<float>::infinity()));
  const auto magnitude = static_cast<Bits<T>>(BitsOf(value) & ~kSign);
  return static_cast<Bits<T>>(static_cast<Bits<T>>(infinity - magnitude) & kSign);
}

template <typename T>
bool IsNan(const T& value) {
  return NanBit(value) != 0;
}

// Returns true if any of `count` elements is NaN.
template <typename T>
bool AnyNan(const T* data, int64_t count) {
  constexpr int64_t kBlock = 1024;  // a constant length, without which -O2 does not vectorise
  int64_t i = 0;
  for (; i + kBlock <= count; i += kBlock) {
    Bits<T> found = 0;
    for (int64_t j = 0; j < kBlock; ++j) found = static_cast<Bits<T>>(found | NanBit(data[i + j]));
    if (found != 0) return true;
  }
  return std::any_of(data + i, data + count, IsNan<T>);
}

}  // namespace warpcall::cpu
