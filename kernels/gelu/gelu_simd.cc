// One pass: load, the whole formula in registers, store. Written for vectors (Highway), compiled
// per instruction set and chosen at run time.
//
// The two forms are in kernels/cpu/simd_gelu-inl.h.
//
// Stores are ordinary ones: past the caches (64 MiB, one core of a 2.7 GHz Xeon with AVX-512)
// streaming stores took 1.1 to 1.2 times as long here, although they help softmax.
#include "kernels/cpu/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/gelu/gelu_simd.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "kernels/cpu/simd_convert-inl.h"
#include "kernels/cpu/simd_gelu-inl.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/gelu/gelu.h"
#include "kernels/plan.h"
#include "proto/common/dispatch.h"
#include "proto/common/status_macros.h"

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
    piece.tanh ? Apply<simd::TanhForm>(x, y, count) : Apply<simd::ErfForm>(x, y, count);
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
