// gelu's two forms as a GPU computes them: few instructions, no branch, right for every float.
#pragma once

namespace warpcall::gelu {

// Subnormal arguments and results count as 0. Taken here as off by 2 and 1 units in the last place
// at most, which is what CUDA documents for exp2f and for 1 / x without -prec-div.
__device__ inline float Exp2(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

__device__ inline float Reciprocal(float x) {
  float result;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

// NaN when an argument is, unlike fmaxf and fminf.
__device__ inline float MaxOrNan(float a, float b) {
  float result;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
  return result;
}

__device__ inline float MinOrNan(float a, float b) {
  float result;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
  return result;
}

// 0.5 (1 + tanh(a)) = 1 / (1 + exp(-2a)), so y = x / (1 + 2^u) with u a cubic in x. Emulated with
// those errors at their worst, on every 389th float, y is off by less than 3.1 x 2^-24 |x|.
struct TanhForm {
  // log2(e) x 2 sqrt(2 / pi) and that x 0.044715, negated: u = x (kLinear + kCubic x^2).
  static constexpr float kLinear = -2.30220819f;
  static constexpr float kCubic = -0.102943239f;
  // 2^u is infinite from here on down, its reciprocal 0 and y -0, where -infinity would give NaN.
  // On the other side x^2 may overflow: 2^-infinity is 0 and y = x.
  static constexpr float kLeast = -32.0f;

  static __device__ float Apply(float x) {
    const float bounded = MaxOrNan(x, kLeast);
    const float u = bounded * fmaf(bounded * bounded, kCubic, kLinear);
    return bounded * Reciprocal(Exp2(u) + 1.0f);
  }
};

// y = max(x, 0) - s Phi(-s) with s = |x|, and Phi(-s) = 2^P(s) with a polynomial P: one exp2 and no
// reciprocal, fewer instructions than erff alone.
//
// P was fitted for this file to log2(0.5 erfc(s / sqrt(2))) at 3000 Chebyshev points of 0 <= s <=
// 5.5, in float64, by Lawson's iteration (least squares, weights multiplied by the errors until the
// largest is smallest). An error counted in units of 2^-24 / Phi(-s) or of 2^-12, whichever is
// less: as an error of Phi, or relative to it where Phi is small. P(0) = -1 was given, so that y =
// x / 2 near 0; coefficients were rounded to float from the highest down, the others fitted anew
// each time. Phi is off by 0.74 x 2^-24, or 2^-12.5 of itself; with Exp2's error at its worst, y by
// less than 2.3 x 2^-24 |x|. Beyond 5.5 P falls faster and faster, as the truth does: y is 7 % off
// at -7, where it is 9e-12.
struct ErfForm {
  static constexpr int kDegree = 8;
  static constexpr float kGreatest = 16.0f;  // P is -1508 here: Phi(-s) = 0

  static __device__ float Apply(float x) {
    constexpr float kLog2Phi[kDegree + 1] = {-1.0f,           -1.15110886f,   -0.459165871f,
                                             -0.0526514240f,  0.00731929950f, -3.51257040e-4f,
                                             -9.22289328e-5f, 1.90048322e-5f, -1.12249802e-6f};
    const float s = MinOrNan(fabsf(x), kGreatest);
    float p = kLog2Phi[kDegree];
#pragma unroll
    for (int i = kDegree - 1; i >= 0; --i) p = fmaf(p, s, kLog2Phi[i]);
    return fmaf(-s, Exp2(p), MaxOrNan(x, 0.0f));
  }
};

}  // namespace warpcall::gelu
