// cuBLASLt with its epilogue that adds a bias. Those that go on to relu and gelu are not offered:
// what they make of NaN and -infinity is the library's, and has not been seen to be what the op
// says.
#include "absl/strings/str_cat.h"
#include "kernels/common/status_macros.h"
#include "kernels/linear/linear.h"
#include "kernels/matmul/matmul.h"
#include "kernels/matmul/matmul_cublaslt.h"
#include "kernels/plan.h"

namespace warpcall::linear {
namespace {

absl::Status Supports(const Problem& problem, const DeviceProperties&) {
  const Problem product = ProductOf(problem);
  RETURN_IF_ERROR(matmul::CheckCublaslt(product));
  if (ActivationOf(problem) != matmul::Activation::kNone)
    return absl::UnimplementedError(
        absl::StrCat("cublaslt takes activation none, got ",
                     std::get<std::string>(problem.attributes[kActivation])));
  if (problem.outputs[0].elements() > 0 && matmul::NothingToSum(product))
    return absl::UnimplementedError("cublaslt takes a k of 1 or more, got 0");
  return absl::OkStatus();
}

absl::StatusOr<PlanPtr> MakeCublasltPlan(const Problem& problem, const PlanContext& context) {
  if (problem.outputs[0].elements() == 0) return PlanNothing();
  return matmul::PlanCublasltWithBias(ProductOf(problem), context);
}

}  // namespace

Implementation CublasltRow() {
  return {.name = "cublaslt",
          .family = Family::kLibrary,
          .device_kind = DeviceKind::kCuda,
          .summary = "cuBLASLt with its bias epilogue, the fastest of the proposed algorithms",
          // In 16 bits some of the algorithms round the product before they add the bias.
          .data_types = {DataType::kFloat32},
          .supports = Supports,
          .slow_to_plan = true,
          .plan = MakeCublasltPlan};
}

}  // namespace warpcall::linear
