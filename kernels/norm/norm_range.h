// Rows whose squares leave float32's range. Their results are ordinary numbers all the same, so
// they are computed on x times a power of two, which is exact. No Abseil: CUDA files include this.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#if defined(__CUDACC__)
#define WARPCALL_NORM_INLINE __host__ __device__ __forceinline__
#else
#define WARPCALL_NORM_INLINE inline
#endif

namespace warpcall::norm {

struct Scale {
  float factor = 1;   // multiplies x
  float epsilon = 0;  // epsilon x factor^2
};

// Returns true if a sum of squares of unscaled x is usable: it has not overflowed, and its loss to
// underflow is negligible beside the sum or epsilon. False for NaN.
WARPCALL_NORM_INLINE bool IsInRange(float sum_of_squares, float epsilon) {
  constexpr float kLargest = 0x1p127f;
  return sum_of_squares <= kLargest && epsilon <= 0x1p100f &&
         (sum_of_squares >= 0x1p-100f || epsilon >= 0x1p-60f);
}

// As IsInRange, given only a row's `reciprocal`, 1 / sqrt(mean square + epsilon) in float32, and
// its n elements. Also false for some rows that are right, all of them very small.
WARPCALL_NORM_INLINE bool IsReciprocalInRange(float reciprocal, float n, float epsilon) {
  const float total = 1 / (reciprocal * reciprocal);
  return reciprocal > 0 && total * n <= 0x1p127f && epsilon <= 0x1p100f && total >= 0x1p-60f;
}

// Returns true if the standard deviation of n elements is below a sixteenth of their mean, given
// the sum of their squared distances from it or an upper bound of that sum. A mean summed directly
// from such elements has an error too large beside those distances.
WARPCALL_NORM_INLINE bool AreCloseTogether(float mean, float sum_of_squares, float n) {
  const float sixteenth = mean / 16;
  return sum_of_squares < n * sixteenth * sixteenth;
}

// Scaled epsilon, kept above 0 if epsilon is above 0: in a row of equal elements only epsilon keeps
// the square above 0.
WARPCALL_NORM_INLINE float KeptAboveZero(float scaled, double epsilon) {
  constexpr float kLeastNormal = 0x1p-126f;
  return epsilon > 0 && scaled < kLeastNormal ? kLeastNormal : scaled;
}

// The scale for a row whose largest finite |x| is `largest`. An infinite `largest` leaves x as it
// is: the result is then NaN or 0.
WARPCALL_NORM_INLINE Scale ScaleFor(float largest, double epsilon) {
  const float root = static_cast<float>(sqrt(epsilon));
  const float greater = largest > root ? largest : root;
  if (!(greater > 0) || largest > 0x1.fffffep127f)
    return {1, KeptAboveZero(static_cast<float>(epsilon), epsilon)};
    // Brings the greater of the two to [2^-2, 2^-1), save at the ends of the range.
#if defined(__CUDA_ARCH__)
  const auto bits = static_cast<uint32_t>(__float_as_uint(greater));
#else
  const auto bits = std::bit_cast<uint32_t>(greater);
#endif
  int exponent = 127 - static_cast<int>(bits >> 23) - 2;
  if (exponent > 126) exponent = 126;
  if (exponent < -126) exponent = -126;
  const uint32_t factor_bits = static_cast<uint32_t>(exponent + 127) << 23;
#if defined(__CUDA_ARCH__)
  const float factor = __uint_as_float(factor_bits);
#else
  const auto factor = std::bit_cast<float>(factor_bits);
#endif
  return {factor, KeptAboveZero(static_cast<float>(epsilon * factor * factor), epsilon)};
}

}  // namespace warpcall::norm
