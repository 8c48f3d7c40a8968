// oneDNN's reorder between equal layouts, which is a copy.
#include "kernels/cpu/onednn.h"
#include "kernels/identity/identity.h"
#include "kernels/plan.h"

namespace warpcall::identity {
namespace {

// Throws dnnl::error. float16 travels as bfloat16: no bits are looked at, and oneDNN's copy for
// float16 is the slow generic one.
dnnl::reorder::primitive_desc Describe(const Problem& problem, const dnnl::engine& engine) {
  const TensorSpec& x = problem.inputs[0];
  const DataType carrier =
      x.data_type == DataType::kFloat32 ? DataType::kFloat32 : DataType::kBFloat16;
  const dnnl::memory::desc layout = onednn::Flat(carrier, x.elements());
  return {engine, layout, engine, layout};
}

absl::Status Supports(const Problem& problem, const DeviceProperties&) {
  if (problem.inputs[0].elements() == 0) return absl::OkStatus();
  return onednn::CheckHas("reorder", problem.inputs[0],
                          [&] { Describe(problem, onednn::CpuEngine()); });
}

absl::Status Launch(const Problem& problem, const Operands& operands,
                    const LaunchContext& context) {
  if (problem.inputs[0].elements() == 0) return absl::OkStatus();
  return onednn::Guard(absl::StatusCode::kInternal, "reorder", [&] {
    const onednn::Team team(context, problem.inputs[0].elements(), onednn::kElementsWorthAThread);
    const dnnl::engine engine = onednn::CpuEngine();
    const dnnl::reorder::primitive_desc descriptor = Describe(problem, engine);
    const dnnl::memory x(descriptor.src_desc(), engine, const_cast<void*>(operands.inputs[0]));
    const dnnl::memory y(descriptor.dst_desc(), engine, operands.outputs[0]);
    onednn::Execute(dnnl::reorder(descriptor), x, y);
  });
}

}  // namespace

Implementation OnednnReorderRow() {
  return {.name = "onednn_reorder",
          .family = Family::kLibrary,
          .device_kind = DeviceKind::kCpu,
          .summary = "oneDNN's reorder primitive",
          .data_types = {DataType::kFloat32, DataType::kFloat16, DataType::kBFloat16},
          .supports = Supports,
          .plan = PlanBy(Launch)};
}

}  // namespace warpcall::identity
