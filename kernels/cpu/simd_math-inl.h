// Elementary functions on vectors of floats, for every target of Highway. Polynomials interpolate
// the function in Chebyshev nodes (computed in float64 for this file); the errors quoted are
// theirs, rounding comes on top.

#if defined(WARPCALL_KERNELS_CPU_SIMD_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WARPCALL_KERNELS_CPU_SIMD_MATH_INL_H_
#undef WARPCALL_KERNELS_CPU_SIMD_MATH_INL_H_
#else
#define WARPCALL_KERNELS_CPU_SIMD_MATH_INL_H_
#endif

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace warpcall::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// c[0] + c[1] x + ... by Horner's rule.
template <class D, size_t kTerms>
HWY_INLINE hn::Vec<D> Polynomial(D d, hn::Vec<D> x, const float (&c)[kTerms]) {
  auto sum = hn::Set(d, c[kTerms - 1]);
  for (size_t i = kTerms - 1; i-- > 0;) sum = hn::MulAdd(sum, x, hn::Set(d, c[i]));
  return sum;
}

// value x 2^n for -126 <= n <= 127, n an integer in every lane.
template <class D>
HWY_INLINE hn::Vec<D> ScaleByPowerOfTwo(D d, hn::Vec<D> value, hn::Vec<hn::RebindToSigned<D>> n) {
  const hn::RebindToSigned<D> di;
  const auto exponent = hn::ShiftLeft<23>(hn::Add(n, hn::Set(di, 127)));
  return hn::Mul(value, hn::BitCast(d, exponent));
}

// 2^x for -126 <= x <= 127, relative error 2.6e-9; NaN for NaN.
template <class D>
HWY_INLINE hn::Vec<D> Exp2(D d, hn::Vec<D> x) {
  // On [-0.5, 0.5], where NearestInt leaves the rest.
  static constexpr float kCoefficients[] = {1.0f,           0.693147207f,   0.240226509f,
                                            0.0555032723f,  0.00961805668f, 0.00134004282f,
                                            0.000154614447f};
  const auto n = hn::NearestInt(x);
  const auto rest = hn::Sub(x, hn::ConvertTo(d, n));
  return ScaleByPowerOfTwo(d, Polynomial(d, rest, kCoefficients), n);
}

// exp(x) for x <= 0, relative error 2.6e-9; 0 where exp(x) < 2^-126, NaN for NaN.
template <class D>
HWY_INLINE hn::Vec<D> ExpNotPositive(D d, hn::Vec<D> x) {
  // On [-ln(2) / 2, ln(2) / 2].
  static constexpr float kCoefficients[] = {
      1.0f, 1.00000004f, 0.500000005f, 0.166664155f, 0.0416663529f, 0.0083751264f, 0.00139411084f};
  constexpr float kLog2E = 1.44269504f;
  // ln(2) in two parts (Cody and Waite, 1980): n x kLn2High is exact for |n| < 2^9.
  constexpr float kLn2High = 0.693359375f;
  constexpr float kLn2Low = -2.12194440e-4f;
  constexpr float kUnderflow = -87.3365448f;  // ln(2^-126)
  const auto n = hn::NearestInt(hn::Mul(x, hn::Set(d, kLog2E)));
  const auto n_float = hn::ConvertTo(d, n);
  auto rest = hn::NegMulAdd(n_float, hn::Set(d, kLn2High), x);
  rest = hn::NegMulAdd(n_float, hn::Set(d, kLn2Low), rest);
  const auto result = ScaleByPowerOfTwo(d, Polynomial(d, rest, kCoefficients), n);
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, kUnderflow)), result);
}

// 1 / x for 2^-126 <= |x| <= 2^125: an approximation of at least 11 bits and one step of Newton's
// method give 22 or more.
template <class D>
HWY_INLINE hn::Vec<D> Reciprocal(D d, hn::Vec<D> x) {
  const auto guess = hn::ApproximateReciprocal(x);
  return hn::Mul(guess, hn::NegMulAdd(x, guess, hn::Set(d, 2.0f)));
}

}  // namespace warpcall::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
