// linear_triton.py's kernels, compiled when this was built.
#include <string>

#include "kernels/linear/linear.h"
#include "kernels/linear/linear_cuda_sums.h"
#include "kernels/matmul/matmul.h"
#include "kernels/triton/row.h"
#include "proto/common/check.h"
#include "proto/common/status_macros.h"

namespace warpcall::linear {
namespace {

constexpr char kOp[] = "linear";

// REQUIRES: there is something to sum.
triton::Order OrderFor(const Problem& problem) {
  const Problem product = ProductOf(problem);
  WARPCALL_DCHECK(!matmul::NothingToSum(product));
  const int64_t m = product.inputs[0].dims[0];
  const int64_t k = product.inputs[0].dims[1];
  const int64_t n = product.inputs[1].dims[0];
  return {.traits = {},
          .integers = {{"m", m},
                       {"n", n},
                       {"k", k},
                       {"activation", static_cast<int64_t>(ActivationOf(problem))}},
          .sizes = {m, n, k}};
}

absl::Status Supports(const Problem& problem, const DeviceProperties& device) {
  const DataType type = problem.inputs[kX].data_type;
  if (matmul::NothingToSum(ProductOf(problem))) return triton::KernelsOf(kOp, type).status();
  return triton::CheckSupported(kOp, type, OrderFor(problem), device);
}

std::vector<std::string> Names(DataType type) { return triton::VariantNames(kOp, type); }

absl::StatusOr<PlanPtr> MakeTritonPlan(const Problem& problem, const PlanContext& context) {
  if (!matmul::NothingToSum(ProductOf(problem)))
    return triton::PlanKernel(kOp, problem, OrderFor(problem), context);
  if (context.variant != kRowsChoice) {
    const size_t count = Names(problem.inputs[kX].data_type).size();
    RETURN_IF_ERROR(CheckVariantNumber(context.variant, static_cast<int>(count)));
  }
  return PlanWithoutSums(problem, context);
}

}  // namespace

Implementation TritonLinearRow() {
  return {.name = "triton_linear",
          .family = Family::kTriton,
          .device_kind = DeviceKind::kCuda,
          .summary =
              "a tile a block by kernels in Triton's language, compiled ahead; bias and "
              "activation on its sums",
          .data_types = {DataType::kFloat32, DataType::kFloat16, DataType::kBFloat16},
          .supports = Supports,
          .variant_names = Names,
          .plan = MakeTritonPlan};
}

}  // namespace warpcall::linear
