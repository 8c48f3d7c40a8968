// Elementary functions on vectors of floats over all of their range, for every target of Highway:
// relative error below 4 units in the last place, NaN for NaN, the limit for infinities.
// Coefficients were fitted in Chebyshev nodes, in float64; the errors quoted are theirs.

#if defined(WARPCALL_KERNELS_CPU_SIMD_FUNCTIONS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WARPCALL_KERNELS_CPU_SIMD_FUNCTIONS_INL_H_
#undef WARPCALL_KERNELS_CPU_SIMD_FUNCTIONS_INL_H_
#else
#define WARPCALL_KERNELS_CPU_SIMD_FUNCTIONS_INL_H_
#endif

#include <limits>

#include "hwy/highway.h"
#include "kernels/cpu/simd_gelu-inl.h"
#include "kernels/cpu/simd_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace warpcall::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// ln(2) in two parts: n x kLn2High is exact for |n| < 2^9 (Cody and Waite, 1980).
inline constexpr float kLn2High = 0.693359375f;
inline constexpr float kLn2Low = -2.12194440e-4f;

// value x 2^n for |n| <= 252, in two steps: the result may be subnormal or overflow.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V ScaleTwice(D d, V value, hn::Vec<hn::RebindToSigned<D>> n) {
  const auto half = hn::ShiftRight<1>(n);
  return ScaleByPowerOfTwo(d, ScaleByPowerOfTwo(d, value, half), hn::Sub(n, half));
}

// exp(rest) - 1 for |rest| <= ln(2) / 2.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V ExpM1OfRest(D d, V rest) {
  // (exp(r) - 1 - r) / r^2, error 1.4e-9.
  static constexpr float kCoefficients[] = {0.5f,           0.166666667f,   0.0416664627f,
                                            0.00833331067f, 0.00139339001f, 0.000198912686f};
  return hn::MulAdd(hn::Mul(rest, rest), Polynomial(d, rest, kCoefficients), rest);
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V ExpOfAny(D d, V x) {
  // Beyond these the result is 0 or infinite.
  const V bounded = hn::Max(hn::Min(x, hn::Set(d, 90.0f)), hn::Set(d, -105.0f));
  const auto n = hn::NearestInt(hn::Mul(bounded, hn::Set(d, 1.44269504f)));
  const V n_float = hn::ConvertTo(d, n);
  V rest = hn::NegMulAdd(n_float, hn::Set(d, kLn2High), bounded);
  rest = hn::NegMulAdd(n_float, hn::Set(d, kLn2Low), rest);
  const V power = hn::Add(ExpM1OfRest(d, rest), hn::Set(d, 1.0f));
  return hn::IfThenElse(hn::IsNaN(x), x, ScaleTwice(d, power, n));
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V Exp2OfAny(D d, V x) {
  const V bounded = hn::Max(hn::Min(x, hn::Set(d, 130.0f)), hn::Set(d, -152.0f));
  const auto n = hn::NearestInt(bounded);
  const V rest = hn::Mul(hn::Sub(bounded, hn::ConvertTo(d, n)), hn::Set(d, 0.693147181f));
  const V power = hn::Add(ExpM1OfRest(d, rest), hn::Set(d, 1.0f));
  return hn::IfThenElse(hn::IsNaN(x), x, ScaleTwice(d, power, n));
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V Log(D d, V x) {
  const hn::RebindToSigned<D> di;
  // (2 atanh(s) - 2 s) / s^3 by s^2, error 1.2e-9.
  static constexpr float kCoefficients[] = {0.666666667f, 0.400001243f, 0.285505874f, 0.233368112f};
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const auto is_small = hn::Lt(x, hn::Set(d, 0x1p-126f));
  const V normal = hn::IfThenElse(is_small, hn::Mul(x, hn::Set(d, 0x1p25f)), x);
  // normal = m 2^e with sqrt(1/2) <= m < sqrt(2).
  const auto bits = hn::BitCast(di, normal);
  const auto shifted = hn::Sub(bits, hn::Set(di, 0x3F3504F3));
  const auto e = hn::ShiftRight<23>(shifted);
  const V m = hn::BitCast(d, hn::Sub(bits, hn::ShiftLeft<23>(e)));
  V exponent = hn::ConvertTo(d, e);
  exponent = hn::IfThenElse(is_small, hn::Sub(exponent, hn::Set(d, 25.0f)), exponent);
  const V one = hn::Set(d, 1.0f);
  const V s = hn::Div(hn::Sub(m, one), hn::Add(m, one));
  const V square = hn::Mul(s, s);
  V rest = hn::Mul(hn::Mul(s, square), Polynomial(d, square, kCoefficients));
  rest = hn::MulAdd(exponent, hn::Set(d, kLn2Low), rest);
  rest = hn::Add(hn::Add(s, s), rest);
  V result = hn::MulAdd(exponent, hn::Set(d, kLn2High), rest);
  result = hn::IfThenElse(hn::Eq(x, hn::Zero(d)), hn::Set(d, -kInfinity), result);
  result = hn::IfThenElse(hn::Eq(x, hn::Set(d, kInfinity)), x, result);
  const auto is_nan = hn::Or(hn::Lt(x, hn::Zero(d)), hn::IsNaN(x));
  return hn::IfThenElse(is_nan, hn::Set(d, std::numeric_limits<float>::quiet_NaN()), result);
}

// (e - 1) / (e + 1) with e = exp(2 |x|), by exp - 1 so that nothing is lost near 0.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V Tanh(D d, V x) {
  constexpr float kOne = 10.0f;  // beyond it the result is 1
  const V size = hn::Min(hn::Abs(x), hn::Set(d, kOne));
  const V y = hn::Add(size, size);
  const auto n = hn::NearestInt(hn::Mul(y, hn::Set(d, 1.44269504f)));
  const V n_float = hn::ConvertTo(d, n);
  V rest = hn::NegMulAdd(n_float, hn::Set(d, kLn2High), y);
  rest = hn::NegMulAdd(n_float, hn::Set(d, kLn2Low), rest);
  const V power = ScaleByPowerOfTwo(d, hn::Set(d, 1.0f), n);
  const V less_one = hn::Sub(power, hn::Set(d, 1.0f));
  const V expm1 = hn::MulAdd(power, ExpM1OfRest(d, rest), less_one);
  const V result = hn::CopySign(hn::Div(expm1, hn::Add(expm1, hn::Set(d, 2.0f))), x);
  return hn::IfThenElse(hn::IsNaN(x), x, result);
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V Erf(D d, V x) {
  // erf(z) / z by z^2 for |z| <= 0.9, error 3.1e-10.
  static constexpr float kCoefficients[] = {1.12837917f,    -0.376126352f,  0.11283718f,
                                            -0.0268606648f, 0.00520422673f, -0.000817963252f,
                                            0.000085294027f};
  const V size = hn::Abs(x);
  const V near = hn::Mul(x, Polynomial(d, hn::Mul(x, x), kCoefficients));
  const V scaled = hn::Min(hn::Mul(size, hn::Set(d, 1.41421356f)), hn::Set(d, ErfForm::kGreatest));
  const V tail = ErfForm::Tail(d, scaled);
  const V far = hn::CopySign(hn::NegMulAdd(tail, hn::Set(d, 2.0f), hn::Set(d, 1.0f)), x);
  const V result = hn::IfThenElse(hn::Lt(size, hn::Set(d, 0.9f)), near, far);
  return hn::IfThenElse(hn::IsNaN(x), x, result);
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V Sigmoid(D d, V x) {
  const V one = hn::Set(d, 1.0f);
  return hn::Div(one, hn::Add(one, ExpOfAny(d, hn::Neg(x))));
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V Silu(D d, V x) {
  const V result = hn::Div(x, hn::Add(hn::Set(d, 1.0f), ExpOfAny(d, hn::Neg(x))));
  const V least = hn::Set(d, std::numeric_limits<float>::lowest());
  return hn::IfThenZeroElse(hn::Lt(x, least), result);
}

}  // namespace warpcall::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
