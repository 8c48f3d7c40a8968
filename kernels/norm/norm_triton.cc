// layernorm_triton.py's and rmsnorm_triton.py's kernels, compiled with the project.
#include <cmath>
#include <string>
#include <vector>

#include "kernels/norm/norm.h"
#include "kernels/triton/row.h"
#include "proto/common/status_macros.h"

namespace warpcall::norm {
namespace {

const char* OpOf(bool centered) { return centered ? "layernorm" : "rmsnorm"; }

// Describes a problem to norm_triton.py's kernels. They get epsilon as its square root,
// `root`, and as the smallest value that its scaled square may have, `least`.
triton::Order OrderFor(const View& view) {
  return {.traits = {},
          .integers = {{"rows", view.rows}, {"n", view.n}},
          .floats = {{"root", static_cast<float>(std::sqrt(view.epsilon))},
                     {"least", view.epsilon > 0 ? 0x1p-126f : 0.0f}},
          .sizes = {view.n}};
}

absl::Status Supports(const Problem& problem, const DeviceProperties& device) {
  const View view = ViewOf(problem);
  const DataType type = problem.inputs[kX].data_type;
  if (problem.inputs[kX].elements() == 0)
    return triton::KernelsOf(OpOf(view.centered), type).status();
  return triton::CheckSupported(OpOf(view.centered), type, OrderFor(view), device);
}

absl::StatusOr<PlanPtr> MakeTritonPlan(const Problem& problem, const PlanContext& context) {
  if (problem.inputs[kX].elements() == 0) return PlanNothing();
  const View view = ViewOf(problem);
  return triton::PlanKernel(OpOf(view.centered), problem, OrderFor(view), context);
}

template <bool kCentered>
std::vector<std::string> Names(DataType type) {
  return triton::VariantNames(OpOf(kCentered), type);
}

Implementation Row(const char* name, std::vector<std::string> (*names)(DataType)) {
  return {.name = name,
          .family = Family::kTriton,
          .device_kind = DeviceKind::kCuda,
          .summary =
              "rows by kernels in Triton's language, compiled ahead: several, one or a part "
              "of one a block",
          .data_types = {DataType::kFloat32, DataType::kFloat16, DataType::kBFloat16},
          .supports = Supports,
          .variant_names = names,
          .plan = MakeTritonPlan};
}

}  // namespace

Implementation TritonLayernormRow() { return Row("triton_layernorm", Names</*kCentered=*/true>); }

Implementation TritonRmsnormRow() { return Row("triton_rmsnorm", Names</*kCentered=*/false>); }

}  // namespace warpcall::norm
