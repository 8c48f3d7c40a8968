// One pass: vectors of 16 bytes, the formula in registers in float, each byte moved once. In 16-bit
// types an H200 has time for some 29 instructions an element before they, not the memory, set the
// pace; both forms take about half of that.
#include <cstdint>

#include "kernels/common/dispatch.h"
#include "kernels/cuda/elementwise.h"
#include "kernels/gelu/gelu.h"

namespace warpcall::gelu {
namespace {

// Subnormal arguments and results count as 0. Taken here as off by 2 and 1 units in the last place
// at most, which is what CUDA documents for exp2f and for 1 / x without -prec-div.
__device__ float Exp2(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

__device__ float Reciprocal(float x) {
  float result;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

// NaN when an argument is, unlike fmaxf and fminf.
__device__ float MaxOrNan(float a, float b) {
  float result;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
  return result;
}

__device__ float MinOrNan(float a, float b) {
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

template <typename Form>
struct ApplyForm {
  template <typename T, int kWidth>
  __device__ cuda::Vector<T, kWidth> operator()(const cuda::Vector<T, kWidth>& x) const {
    float values[kWidth];
    x.Unpack(values);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) values[i] = Form::Apply(values[i]);
    return cuda::Vector<T, kWidth>::Pack(values);
  }
};

template <typename Form, typename T>
__global__ void __launch_bounds__(cuda::kMapThreads)
    Gelu(const T* __restrict__ x, T* __restrict__ y, int64_t count) {
  cuda::MapTile(x, y, count, ApplyForm<Form>());
}

template <typename T>
auto* KernelFor(const Problem& problem) {
  return UsesTanh(problem) ? &Gelu<TanhForm, T> : &Gelu<ErfForm, T>;
}

template <typename T>
cuda::Grid GridFor(const Problem& problem) {
  return cuda::LinearGrid(problem.inputs[0].elements(), cuda::kMapTileElements<T>,
                          cuda::kMapThreads);
}

absl::Status Supports(const Problem& problem, const DeviceProperties&) {
  const TensorSpec& x = problem.inputs[0];
  return DispatchDataType(x.data_type, [&]<typename T>(T) {
    return cuda::CheckLinearGrid(x.elements(), cuda::kMapTileElements<T>, "vectorized");
  });
}

absl::StatusOr<PlanPtr> MakeVectorPlan(const Problem& problem, const PlanContext& context) {
  ASSIGN_OR_RETURN(const int form, FormToPlan(problem, context));
  const int64_t elements = problem.inputs[0].elements();
  if (elements == 0) return PlanNothing();
  return DispatchDataType(problem.inputs[0].data_type, [&]<typename T>(T) {
    auto* const kernel = KernelFor<T>(problem);
    const cuda::Grid grid = GridFor<T>(problem);
    return cuda::NewKernelPlan(
        {.variant = form, .may_be_replayed = true}, {kernel, grid}, context,
        [kernel, grid, elements](const Operands& operands, const LaunchContext& launch) {
          return cuda::Launch(kernel, grid, launch, static_cast<const T*>(operands.inputs[0]),
                              static_cast<T*>(operands.outputs[0]), elements);
        });
  });
}

}  // namespace

Implementation VectorizedRow() {
  return {.name = "vectorized",
          .family = Family::kCuda,
          .device_kind = DeviceKind::kCuda,
          .summary = "one pass in vectors of 16 bytes, the formula in registers",
          .data_types = {DataType::kFloat32, DataType::kFloat16, DataType::kBFloat16},
          .supports = Supports,
          .suits_host_memory = true,
          .variant_names = FormNames,
          .plan = MakeVectorPlan};
}

}  // namespace warpcall::gelu
