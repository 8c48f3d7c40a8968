// One pass: load, the whole formula in registers, store. Written for vectors (Highway), compiled
// per instruction set and chosen at run time.
//
// tanh: 0.5 (1 + tanh(a)) = 1 / (1 + exp(-2a)), so y = x / (1 + 2^u) with u a cubic in x: one exp2,
// one reciprocal, no branch.
//
// none: y = x Phi(x) with the tail Phi(-|x|) = 0.5 erfc(z) = exp(-z^2) t P(t), where z = |x| /
// sqrt(2) and t = 1 / (1 + p z). The form is Hastings's (Approximations for Digital Computers,
// 1955; Abramowitz and Stegun 7.1.26); p and a P of degree 6 were fitted in float64 for this file,
// error 5.7e-9 for all z.
//
// Stores are ordinary ones: past the caches (64 MiB, one core of a 2.7 GHz Xeon with AVX-512)
// streaming stores took 1.1 to 1.2 times as long here, although they help softmax.
#include "kernels/cpu/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/gelu/gelu_simd.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "kernels/common/dispatch.h"
#include "kernels/common/status_macros.h"
#include "kernels/cpu/simd_convert-inl.h"
#include "kernels/cpu/simd_math-inl.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/gelu/gelu.h"
#include "kernels/plan.h"

#ifndef WARPCALL_GELU_SIMD_ONCE
#define WARPCALL_GELU_SIMD_ONCE
namespace warpcall::gelu {

// A piece of the tensor; x and y point at its first element.
struct Piece {
  const void* x;
  void* y;
  int64_t count;
  DataType data_type;
  bool tanh;
};

}  // namespace warpcall::gelu
#endif

HWY_BEFORE_NAMESPACE();
namespace warpcall::gelu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
namespace simd = warpcall::cpu::HWY_NAMESPACE;

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
    const V y = hn::Mul(x, simd::Reciprocal(d, hn::Add(simd::Exp2(d, u), hn::Set(d, 1.0f))));
    return hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, kLeast)), y);
  }
};

struct ErfForm {
  static constexpr float kP = 0.325269119f;  // p / sqrt(2), p = 0.46
  static constexpr float kTail[] = {0.13125109f,  0.112774809f,  0.197813142f, -0.124332775f,
                                    0.367077045f, -0.230288424f, 0.0457051152f};
  static constexpr float kHalfLog2E = 0.721347520f;
  static constexpr float kGreatest = 13.0f;  // below -13 |y| < 1e-36, given as 0

  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE V Apply(D d, V x) {
    const V one = hn::Set(d, 1.0f);
    const V size = hn::Min(hn::Abs(x), hn::Set(d, kGreatest));
    const V t = simd::Reciprocal(d, hn::MulAdd(size, hn::Set(d, kP), one));
    const V exponent = hn::Mul(hn::Mul(size, size), hn::Set(d, -kHalfLog2E));
    const V tail = hn::Mul(hn::Mul(simd::Exp2(d, exponent), t), simd::Polynomial(d, t, kTail));
    const V phi = hn::IfThenElse(hn::Lt(x, hn::Zero(d)), tail, hn::Sub(one, tail));
    return hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, -kGreatest)), hn::Mul(x, phi));
  }
};

template <typename Form, typename T>
void Apply(const T* x, T* y, size_t count) {
  const hn::ScalableTag<float> d;
  const size_t lanes = hn::Lanes(d);
  size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    simd::StoreFloats(d, Form::Apply(d, simd::LoadFloats(d, x + i)), y + i);
  }
  if (i < count) {
    const auto value = simd::LoadFloatsPartial(d, x + i, count - i, T{});
    simd::StoreFloatsPartial(d, Form::Apply(d, value), y + i, count - i);
  }
}

void ApplyPiece(const Piece& piece) {
  DispatchDataType(piece.data_type, [&]<typename T>(T) {
    const T* const x = static_cast<const T*>(piece.x);
    T* const y = static_cast<T*>(piece.y);
    const size_t count = static_cast<size_t>(piece.count);
    piece.tanh ? Apply<TanhForm>(x, y, count) : Apply<ErfForm>(x, y, count);
  });
}

}  // namespace
}  // namespace warpcall::gelu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace warpcall::gelu {
namespace {

HWY_EXPORT(ApplyPiece);

// Elements: 10 to 20 us for one thread, some times what waking another costs. A multiple of every
// vector.
constexpr int64_t kGrain = 32 * 1024;

absl::StatusOr<PlanPtr> MakeSimdPlan(const Problem& problem, const PlanContext& context) {
  ASSIGN_OR_RETURN(const int form, FormToPlan(problem, context));
  const TensorSpec& spec = problem.inputs[0];
  return NewPlan({.variant = form}, [elements = spec.elements(), type = spec.data_type,
                                     tanh = UsesTanh(problem)](const Operands& operands,
                                                               const LaunchContext& launch) {
    cpu::WorkersOf(launch).ParallelFor(elements, kGrain, [&](int64_t begin, int64_t end) {
      const size_t offset = static_cast<size_t>(begin) * ElementBytes(type);
      HWY_DYNAMIC_DISPATCH(ApplyPiece)
      ({.x = static_cast<const char*>(operands.inputs[0]) + offset,
        .y = static_cast<char*>(operands.outputs[0]) + offset,
        .count = end - begin,
        .data_type = type,
        .tanh = tanh});
    });
    return absl::OkStatus();
  });
}

}  // namespace

Implementation SimdFusedRow() {
  return {.name = "simd_fused",
          .family = Family::kCpu,
          .device_kind = DeviceKind::kCpu,
          .summary = "one pass, vectorised for the CPU at hand, all threads",
          .data_types = {DataType::kFloat32, DataType::kFloat16, DataType::kBFloat16},
          .supports = SupportsAll,
          .variant_names = FormNames,
          .plan = MakeSimdPlan};
}

}  // namespace warpcall::gelu
#endif  // HWY_ONCE
