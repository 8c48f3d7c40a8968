// oneDNN's softmax primitive, and one pass after it for rows that must be NaN throughout: where the
// axis is the last one it leaves NaN and +infinity to their own element and gives 0 beside them.
#include <algorithm>
#include <limits>

#include "kernels/common/saturate.h"
#include "kernels/cpu/nan_scan.h"
#include "kernels/cpu/onednn.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/plan.h"
#include "kernels/softmax/softmax.h"
#include "proto/common/dispatch.h"
#include "proto/common/status_macros.h"

namespace warpcall::softmax {
namespace {

constexpr int64_t kGrain = 64 * 1024;  // elements of the pass after it

// Throws dnnl::error for what this CPU or version does not have.
dnnl::softmax_v2_forward::primitive_desc Describe(const Problem& problem,
                                                  const dnnl::engine& engine) {
  const View view = ViewOf(problem);
  const dnnl::memory::desc layout({view.outer, view.n, view.inner},
                                  onednn::ToOnednn(problem.inputs[0].data_type),
                                  dnnl::memory::format_tag::abc);
  const dnnl::softmax_v2_forward::desc descriptor(dnnl::prop_kind::forward_inference,
                                                  dnnl::algorithm::softmax_accurate, layout, layout,
                                                  /*axis=*/1);
  return {descriptor, engine};
}

absl::Status Supports(const Problem& problem, const DeviceProperties&) {
  if (problem.inputs[0].elements() == 0) return absl::OkStatus();
  return onednn::CheckHas("softmax", problem.inputs[0],
                          [&] { Describe(problem, onednn::CpuEngine()); });
}

// y holds n x inner elements, of `inner` rows.
template <typename T>
void SpreadNan(T* y, int64_t n, int64_t inner, const StopFlag* stop) {
  const T nan = FromFloat<T>(std::numeric_limits<float>::quiet_NaN());
  const int64_t rows_per_look = std::max<int64_t>(1, cpu::kElementsPerLook / n);
  for (int64_t i = 0; i < inner; ++i) {
    if (i % rows_per_look == 0 && i > 0 && IsSet(stop)) return;
    bool found = false;
    for (int64_t j = 0; j < n; ++j) found = found || cpu::IsNan(y[j * inner + i]);
    if (!found) continue;
    for (int64_t j = 0; j < n; ++j) y[j * inner + i] = nan;
  }
}

absl::Status Launch(const Problem& problem, const Operands& operands,
                    const LaunchContext& context) {
  if (problem.inputs[0].elements() == 0) return absl::OkStatus();
  RETURN_IF_ERROR(onednn::Guard(absl::StatusCode::kInternal, "softmax", [&] {
    const onednn::Team team(context, problem.inputs[0].elements(), onednn::kElementsWorthAThread);
    const dnnl::engine engine = onednn::CpuEngine();
    const dnnl::softmax_v2_forward::primitive_desc descriptor = Describe(problem, engine);
    const dnnl::memory x(descriptor.src_desc(), engine, const_cast<void*>(operands.inputs[0]));
    const dnnl::memory y(descriptor.dst_desc(), engine, operands.outputs[0]);
    onednn::Execute(dnnl::softmax_v2_forward(descriptor), x, y);
  }));
  const View view = ViewOf(problem);
  const int64_t slab = view.n * view.inner;
  DispatchDataType(problem.inputs[0].data_type, [&]<typename T>(T) {
    T* const y = static_cast<T*>(operands.outputs[0]);
    cpu::WorkersOf(context).ParallelFor(
        view.outer, CeilDivide(kGrain, slab), [&](int64_t begin, int64_t end) {
          for (int64_t o = begin; o < end; ++o) {
            if (cpu::AnyNan(y + o * slab, slab))
              SpreadNan(y + o * slab, view.n, view.inner, context.stop);
          }
        });
  });
  return absl::OkStatus();
}

}  // namespace

Implementation OnednnSoftmaxRow() {
  return {.name = "onednn_softmax",
          .family = Family::kLibrary,
          .device_kind = DeviceKind::kCpu,
          .summary = "oneDNN's softmax primitive; sums columns term by term, rounds bfloat16 twice",
          .data_types = {DataType::kFloat32, DataType::kBFloat16},
          .supports = Supports,
          .plan = PlanBy(Launch)};
}

}  // namespace warpcall::softmax
