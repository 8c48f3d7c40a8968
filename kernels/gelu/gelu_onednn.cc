// oneDNN's eltwise primitive, and one pass after it for the value where its formula has no limit:
// it computes gelu(-inf) = -inf x 0 = NaN.
#include <limits>

#include "kernels/cpu/nan_scan.h"
#include "kernels/cpu/onednn.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/gelu/gelu.h"
#include "kernels/plan.h"
#include "proto/common/dispatch.h"
#include "proto/common/status_macros.h"

namespace warpcall::gelu {
namespace {

constexpr int64_t kGrain = 64 * 1024;  // elements of the pass after it

// Throws dnnl::error for what this CPU or version does not have.
dnnl::eltwise_forward::primitive_desc Describe(const Problem& problem, const dnnl::engine& engine) {
  const TensorSpec& x = problem.inputs[0];
  const dnnl::algorithm algorithm =
      UsesTanh(problem) ? dnnl::algorithm::eltwise_gelu_tanh : dnnl::algorithm::eltwise_gelu_erf;
  const dnnl::eltwise_forward::desc descriptor(dnnl::prop_kind::forward_inference, algorithm,
                                               onednn::Flat(x.data_type, x.elements()), 0, 0);
  return {descriptor, engine};
}

absl::Status Supports(const Problem& problem, const DeviceProperties&) {
  if (problem.inputs[0].elements() == 0) return absl::OkStatus();
  return onednn::CheckHas("eltwise", problem.inputs[0],
                          [&] { Describe(problem, onednn::CpuEngine()); });
}

template <typename T>
void FixLimit(const T* x, T* y, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    if (ToFloat(x[i]) < std::numeric_limits<float>::lowest()) y[i] = FromFloat<T>(-0.0f);
  }
}

absl::Status Launch(const Problem& problem, const Operands& operands,
                    const LaunchContext& context) {
  const TensorSpec& spec = problem.inputs[0];
  if (spec.elements() == 0) return absl::OkStatus();
  RETURN_IF_ERROR(onednn::Guard(absl::StatusCode::kInternal, "eltwise", [&] {
    const onednn::Team team(context, spec.elements(), onednn::kElementsWorthAThread);
    const dnnl::engine engine = onednn::CpuEngine();
    const dnnl::eltwise_forward::primitive_desc descriptor = Describe(problem, engine);
    const dnnl::memory x(descriptor.src_desc(), engine, const_cast<void*>(operands.inputs[0]));
    const dnnl::memory y(descriptor.dst_desc(), engine, operands.outputs[0]);
    onednn::Execute(dnnl::eltwise_forward(descriptor), x, y);
  }));
  DispatchDataType(spec.data_type, [&]<typename T>(T) {
    const T* const x = static_cast<const T*>(operands.inputs[0]);
    T* const y = static_cast<T*>(operands.outputs[0]);
    cpu::WorkersOf(context).ParallelFor(spec.elements(), kGrain, [&](int64_t begin, int64_t end) {
      if (cpu::AnyNan(y + begin, end - begin)) FixLimit(x + begin, y + begin, end - begin);
    });
  });
  return absl::OkStatus();
}

}  // namespace

Implementation OnednnEltwiseRow() {
  return {.name = "onednn_eltwise",
          .family = Family::kLibrary,
          .device_kind = DeviceKind::kCpu,
          .summary = "oneDNN's eltwise primitive",
          .data_types = {DataType::kFloat32, DataType::kBFloat16},
          .supports = Supports,
          .plan = PlanBy(Launch)};
}

}  // namespace warpcall::gelu
