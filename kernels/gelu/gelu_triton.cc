// gelu_triton.py's kernels, compiled when this was built.
#include "kernels/gelu/gelu.h"
#include "kernels/triton/row.h"

namespace warpcall::gelu {
namespace {

constexpr char kOp[] = "gelu";

triton::Order OrderFor(const Problem& problem) {
  const int64_t count = problem.inputs[0].elements();
  return {.traits = {{"form", UsesTanh(problem) ? "tanh" : "none"}},
          .integers = {{"count", count}},
          .sizes = {count}};
}

absl::Status Supports(const Problem& problem, const DeviceProperties& device) {
  const TensorSpec& x = problem.inputs[0];
  if (x.elements() == 0) return triton::KernelsOf(kOp, x.data_type).status();
  return triton::CheckSupported(kOp, x.data_type, OrderFor(problem), device);
}

absl::StatusOr<PlanPtr> MakeTritonPlan(const Problem& problem, const PlanContext& context) {
  if (problem.inputs[0].elements() == 0) return PlanNothing();
  return triton::PlanKernel(kOp, problem, OrderFor(problem), context);
}

}  // namespace

Implementation TritonGeluRow() {
  return {.name = "triton_gelu",
          .family = Family::kTriton,
          .device_kind = DeviceKind::kCuda,
          .summary = "one pass by a kernel in Triton's language, compiled ahead",
          .data_types = {DataType::kFloat32, DataType::kFloat16, DataType::kBFloat16},
          .supports = Supports,
          .suits_host_memory = true,
          .variant_names = [](DataType type) { return triton::VariantNames(kOp, type); },
          .plan = MakeTritonPlan};
}

}  // namespace warpcall::gelu
