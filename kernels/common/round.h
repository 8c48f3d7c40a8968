// Conversion from double to a storage type with one rounding, to nearest with ties to even.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "proto/common/half.h"

namespace warpcall {

// Rounding to odd keeps what the second rounding needs to know: a value that was inexact in float
// never looks like a tie of the narrower type (Boldo and Melquiond, "When double rounding is odd",
// 2005; float has more than two bits more than either type).
inline float ToFloatRoundedToOdd(double value) {
  const float nearest = static_cast<float>(value);
  if (std::isnan(value) || static_cast<double>(nearest) == value) return nearest;
  uint32_t bits = std::bit_cast<uint32_t>(nearest);
  if (std::fabs(static_cast<double>(nearest)) > std::fabs(value)) --bits;
  return std::bit_cast<float>(bits | 1u);
}

template <typename T>
T FromDouble(double value) {
  return FromFloat<T>(ToFloatRoundedToOdd(value));
}

template <>
inline float FromDouble<float>(double value) {
  return static_cast<float>(value);
}

}  // namespace warpcall
