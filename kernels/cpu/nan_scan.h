// Looks for NaN, for rows that correct what a library leaves behind.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "kernels/common/half.h"

namespace warpcall::cpu {

// The bits without the sign, as a signed number of the element's width: they order as the magnitudes do, with NaN
// above infinity, and the maximum over an array is a loop that the compiler vectorises.
template <typename T>
using Magnitude = std::conditional_t<sizeof(T) == 4, int32_t, int16_t>;

template <typename T>
Magnitude<T> MagnitudeOf(T value) {
  return static_cast<Magnitude<T>>(std::bit_cast<Magnitude<T>>(value) &
                                   std::numeric_limits<Magnitude<T>>::max());
}

template <typename T>
bool IsNan(T value) {
  return MagnitudeOf(value) > MagnitudeOf(FromFloat<T>(std::numeric_limits<float>::infinity()));
}

// Whether any of `count` elements is NaN.
template <typename T>
bool AnyNan(const T* data, int64_t count) {
  constexpr int64_t kBlock = 1024;  // a constant length, without which -O2 does not vectorise
  const T infinity = FromFloat<T>(std::numeric_limits<float>::infinity());
  int64_t i = 0;
  for (; i + kBlock <= count; i += kBlock) {
    Magnitude<T> largest = 0;
    for (int64_t j = 0; j < kBlock; ++j) largest = std::max(largest, MagnitudeOf(data[i + j]));
    if (largest > MagnitudeOf(infinity)) return true;
  }
  return std::any_of(data + i, data + count, IsNan<T>);
}

}  // namespace warpcall::cpu
