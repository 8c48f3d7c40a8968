// cuBLASLt with its bias epilogue, in float32 without an activation; otherwise its float32 product,
// which a kernel of ours finishes. In 16 bits some of cuBLASLt's algorithms round the product
// before they add a bias. Its epilogues with relu and gelu have not been shown to treat NaN and
// -infinity as the op does.
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/common/saturate.h"
#include "kernels/linear/linear.h"
#include "kernels/linear/linear_cuda_sums.h"
#include "kernels/matmul/matmul.h"
#include "kernels/matmul/matmul_cublaslt.h"
#include "kernels/plan.h"
#include "proto/common/status_macros.h"

namespace warpcall::linear {
namespace {

absl::Status Supports(const Problem& problem, const DeviceProperties&) {
  return matmul::CheckCublaslt(ProductOf(problem));
}

// The product that the library computes, with float32 sums.
Problem SumsOf(const Problem& problem) {
  Problem product = ProductOf(problem);
  product.outputs[0].data_type = DataType::kFloat32;
  return product;
}

// Workspace bytes for the sums; 0 if the sums lie in the outputs' memory.
size_t SumsBytes(const Problem& problem) {
  if (problem.outputs[0].data_type == DataType::kFloat32) return 0;
  const int64_t alignment = static_cast<int64_t>(kOperandAlignmentBytes / sizeof(float));
  const int64_t units = CeilDivide(problem.outputs[0].elements(), alignment);
  return SaturatingBytes(units, kOperandAlignmentBytes);
}

Operands ProductOperands(const Operands& operands, void* sums) {
  return {.inputs = {operands.inputs[kX], operands.inputs[kWeight]}, .outputs = {sums}};
}

class FinishedPlan final : public Plan {
 public:
  FinishedPlan(const Problem& problem, PlanPtr product)
      : Plan({.workspace_bytes = SumsBytes(problem) + product->traits().workspace_bytes,
              .may_be_replayed = product->traits().may_be_replayed}),
        sums_bytes_(SumsBytes(problem)),
        product_(std::move(product)),
        finish_(FinishOfSums(problem, /*splits=*/1)) {}

  absl::Status Enqueue(const Operands& operands, const LaunchContext& context) const override {
    void* const sums = sums_bytes_ > 0 ? context.workspace : operands.outputs[0];
    LaunchContext of_product = context;
    of_product.workspace = static_cast<char*>(context.workspace) + sums_bytes_;
    RETURN_IF_ERROR(product_->Enqueue(ProductOperands(operands, sums), of_product));
    return finish_.Enqueue(static_cast<const float*>(sums), operands, context);
  }

 private:
  absl::StatusOr<LaunchShape> AskShape() const override {
    ASSIGN_OR_RETURN(LaunchShape shape, product_->shape());
    ++shape.gpu_kernels;
    return shape;
  }

  const size_t sums_bytes_;
  const PlanPtr product_;
  const SumsFinish finish_;
};

// Plans the product alone. Algorithms are tried on sums in the tryout's workspace, if any.
absl::StatusOr<PlanPtr> PlanSums(const Problem& problem, const PlanContext& context) {
  const Tryout* const tryout = context.tryout;
  const size_t sums_bytes = SumsBytes(problem);
  if (tryout == nullptr || sums_bytes == 0)
    return matmul::PlanCublasltSums(SumsOf(problem), context);
  // In one piece: an earlier allocation may be gone once more is requested.
  ASSIGN_OR_RETURN(void* const all,
                   tryout->workspace(sums_bytes + matmul::kCublasltWorkspaceBytes));
  const Operands product = ProductOperands(*tryout->operands, all);
  const auto workspace = [&](size_t) -> absl::StatusOr<void*> {
    return static_cast<char*>(all) + sums_bytes;
  };
  const Tryout of_product = {tryout->stream, &product, workspace};
  PlanContext with_sums = context;
  with_sums.tryout = &of_product;
  return matmul::PlanCublasltSums(SumsOf(problem), with_sums);
}

absl::StatusOr<PlanPtr> MakeCublasltPlan(const Problem& problem, const PlanContext& context) {
  if (problem.outputs[0].elements() == 0) return PlanNothing();
  const Problem product = ProductOf(problem);
  if (matmul::NothingToSum(product)) return PlanWithoutSums(problem, context);
  if (problem.outputs[0].data_type == DataType::kFloat32 &&
      ActivationOf(problem) == matmul::Activation::kNone)
    return matmul::PlanCublasltWithBias(product, context);
  ASSIGN_OR_RETURN(PlanPtr sums, PlanSums(problem, context));
  return std::make_shared<const FinishedPlan>(problem, std::move(sums));
}

}  // namespace

Implementation CublasltRow() {
  return {.name = "cublaslt",
          .family = Family::kLibrary,
          .device_kind = DeviceKind::kCuda,
          .summary =
              "cuBLASLt's product in float32, bias and activation in its epilogue or a "
              "kernel after it",
          .data_types = {DataType::kFloat32, DataType::kFloat16, DataType::kBFloat16},
          .supports = Supports,
          .slow_to_plan = true,
          .plan = MakeCublasltPlan};
}

}  // namespace warpcall::linear
