// matmul's vectorised kernel with bias and activation at the end of every sum.
#include "kernels/linear/linear.h"
#include "kernels/matmul/matmul.h"
#include "kernels/matmul/matmul_simd.h"
#include "kernels/plan.h"
#include "proto/common/status_macros.h"

namespace warpcall::linear {
namespace {

absl::StatusOr<PlanPtr> MakeSimdPlan(const Problem& problem, const PlanContext& context) {
  const Problem product = ProductOf(problem);
  if (!matmul::NothingToSum(product))
    return matmul::PlanSimdTiled(product, context, matmul::Epilogue{ActivationOf(problem)});
  RETURN_IF_ERROR(matmul::CheckSimdVariant(product.outputs[0].data_type, context.variant));
  return NewPlan({}, [problem](const Operands& operands, const LaunchContext&) {
    FinishWithoutSums(problem, operands);
    return absl::OkStatus();
  });
}

}  // namespace

Implementation SimdTiledRow() {
  return {
      .name = "simd_tiled",
      .family = Family::kCpu,
      .device_kind = DeviceKind::kCpu,
      .summary = "matmul's packed panels and register-blocked kernel; bias and activation on sums",
      .data_types = {std::begin(kDataTypes), std::end(kDataTypes)},
      .supports = SupportsAll,
      .variant_names = matmul::SimdVariantNames,
      .plan = MakeSimdPlan};
}

}  // namespace warpcall::linear
