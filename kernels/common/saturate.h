// Arithmetic on sizes that may not wrap. A valid problem can be larger than any memory, and its
// workspace must then be "too much" instead of a small number.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

namespace warpcall {

// a x b for counts that are not negative; the largest int64 where it does not fit.
constexpr int64_t SaturatingMultiply(int64_t a, int64_t b) {
  int64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? std::numeric_limits<int64_t>::max() : product;
}

constexpr int64_t SaturatingAdd(int64_t a, int64_t b) {
  int64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? std::numeric_limits<int64_t>::max() : sum;
}

// Returns the bytes of `count` elements of `bytes_each`.
constexpr size_t SaturatingBytes(int64_t count, size_t bytes_each) {
  return static_cast<size_t>(SaturatingMultiply(count, static_cast<int64_t>(bytes_each)));
}

constexpr int64_t CeilDivide(int64_t a, int64_t b) { return a / b + (a % b != 0 ? 1 : 0); }

}  // namespace warpcall
