// softmax_triton.py's kernels, compiled when this was built: rows side by side in memory.
#include "absl/strings/str_cat.h"
#include "kernels/softmax/softmax.h"
#include "kernels/triton/row.h"
#include "proto/common/status_macros.h"

namespace warpcall::softmax {
namespace {

constexpr char kOp[] = "softmax";

absl::StatusOr<triton::Order> OrderFor(const Problem& problem) {
  const View view = ViewOf(problem);
  if (view.inner != 1)
    return absl::UnimplementedError(absl::StrCat(
        "triton_softmax takes an axis whose elements are adjacent in memory; here they are ",
        view.inner, " apart"));
  return triton::Order{
      .traits = {}, .integers = {{"rows", view.outer}, {"n", view.n}}, .sizes = {view.n}};
}

absl::Status Supports(const Problem& problem, const DeviceProperties& device) {
  const TensorSpec& x = problem.inputs[0];
  if (x.elements() == 0) return triton::KernelsOf(kOp, x.data_type).status();
  ASSIGN_OR_RETURN(const triton::Order order, OrderFor(problem));
  return triton::CheckSupported(kOp, x.data_type, order, device);
}

absl::StatusOr<PlanPtr> MakeTritonPlan(const Problem& problem, const PlanContext& context) {
  if (problem.inputs[0].elements() == 0) return PlanNothing();
  ASSIGN_OR_RETURN(const triton::Order order, OrderFor(problem));
  return triton::PlanKernel(kOp, problem, order, context);
}

}  // namespace

Implementation TritonSoftmaxRow() {
  return {.name = "triton_softmax",
          .family = Family::kTriton,
          .device_kind = DeviceKind::kCuda,
          .summary =
              "rows by kernels in Triton's language, compiled ahead: several, one or a part "
              "of one a block",
          .data_types = {DataType::kFloat32, DataType::kFloat16, DataType::kBFloat16},
          .supports = Supports,
          .variant_names = [](DataType type) { return triton::VariantNames(kOp, type); },
          .plan = MakeTritonPlan};
}

}  // namespace warpcall::softmax
