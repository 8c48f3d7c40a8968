// gelu on vectors of floats, for every target of Highway: see kernels/gelu/gelu.h.
//
// tanh: 0.5 (1 + tanh(a)) = 1 / (1 + exp(-2a)), so y = x / (1 + 2^u) with u a cubic in x: one exp2,
// one reciprocal, no branch.
//
// none: y = x Phi(x) with the tail Phi(-|x|) = 0.5 erfc(z) = exp(-z^2) t P(t), where z = |x| /
// sqrt(2) and t = 1 / (1 + p z). The form is Hastings's (Approximations for Digital Computers,
// 1955; Abramowitz and Stegun 7.1.26); p and a P of degree 6 were fitted in float64 for this file,
// error 5.7e-9 for all z.
//

#if defined(WARPCALL_KERNELS_CPU_SIMD_GELU_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WARPCALL_KERNELS_CPU_SIMD_GELU_INL_H_
#undef WARPCALL_KERNELS_CPU_SIMD_GELU_INL_H_
#else
#define WARPCALL_KERNELS_CPU_SIMD_GELU_INL_H_
#endif

#include "hwy/highway.h"
#include "kernels/cpu/simd_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace warpcall::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

struct TanhForm {
  // log2(e) x 2 sqrt(2 / pi) and that x 0.044715, negated: u = x (kLinear + kCubic x^2).
  static constexpr float kLinear = -2.30220819f;
  static constexpr float kCubic = -0.102943239f;
  // Exponents stay where Exp2 and Reciprocal hold; below kLeast |y| < 1e-34, given as 0.
  static constexpr float kExponentMax = 117.0f;
  static constexpr float kLeast = -9.7f;

  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE V Apply(D d, V x) {
    const V factor = hn::MulAdd(hn::Mul(x, x), hn::Set(d, kCubic), hn::Set(d, kLinear));
    const V u =
        hn::Max(hn::Min(hn::Mul(x, factor), hn::Set(d, kExponentMax)), hn::Set(d, -kExponentMax));
    const V y = hn::Mul(x, Reciprocal(d, hn::Add(Exp2(d, u), hn::Set(d, 1.0f))));
    return hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, kLeast)), y);
  }
};

struct ErfForm {
  static constexpr float kP = 0.325269119f;  // p / sqrt(2), p = 0.46
  static constexpr float kTail[] = {0.13125109f,  0.112774809f,  0.197813142f, -0.124332775f,
                                    0.367077045f, -0.230288424f, 0.0457051152f};
  static constexpr float kHalfLog2E = 0.721347520f;
  static constexpr float kGreatest = 13.0f;  // below -13 |y| < 1e-36, given as 0

  // Phi(-size) for 0 <= size <= kGreatest.
  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE V Tail(D d, V size) {
    const V t = Reciprocal(d, hn::MulAdd(size, hn::Set(d, kP), hn::Set(d, 1.0f)));
    const V exponent = hn::Mul(hn::Mul(size, size), hn::Set(d, -kHalfLog2E));
    return hn::Mul(hn::Mul(Exp2(d, exponent), t), Polynomial(d, t, kTail));
  }

  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE V Apply(D d, V x) {
    const V one = hn::Set(d, 1.0f);
    const V tail = Tail(d, hn::Min(hn::Abs(x), hn::Set(d, kGreatest)));
    const V phi = hn::IfThenElse(hn::Lt(x, hn::Zero(d)), tail, hn::Sub(one, tail));
    return hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, -kGreatest)), hn::Mul(x, phi));
  }
};

}  // namespace warpcall::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
