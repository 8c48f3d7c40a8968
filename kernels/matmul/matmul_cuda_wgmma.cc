// The row wgmma_tiled: 16-bit types on Hopper's tensor cores. matmul_cuda_wgmma.cuh has the kernel.
#include <string>
#include <vector>

#include "kernels/matmul/matmul.h"
#include "kernels/matmul/matmul_cuda_wgmma_kernels.h"
#include "kernels/matmul/matmul_cuda_wgmma_plan.h"
#include "proto/common/status_macros.h"

namespace warpcall::matmul {
namespace {

constexpr WgmmaVariants kVariants;

absl::StatusOr<WgmmaTiling> TilingOf(const Problem& problem, const DeviceProperties& device,
                                     int variant) {
  return MakeWgmmaTiling({.product = problem,
                          .arrangement = ArrangementOf(problem),
                          .variants = kVariants,
                          .variant = variant},
                         device);
}

absl::Status Supports(const Problem& problem, const DeviceProperties& device) {
  RETURN_IF_ERROR(CheckWgmmaArchitecture("wgmma_tiled", device));
  if (!HasSums(problem)) return absl::OkStatus();
  return TilingOf(problem, device, kRowsChoice).status();
}

absl::StatusOr<PlanPtr> MakePlan(const Problem& problem, const PlanContext& context) {
  if (!HasSums(problem)) return PlanOfZeros(problem);
  ASSIGN_OR_RETURN(const WgmmaTiling tiling, TilingOf(problem, *context.device, context.variant));
  const WgmmaKernelPointer kernel = problem.outputs[0].data_type == DataType::kFloat16
                                        ? WgmmaFloat16Kernel(tiling.variant)
                                        : WgmmaBFloat16Kernel(tiling.variant);
  return NewWgmmaPlan(kernel, tiling, context);
}

std::vector<std::string> Names(DataType) { return NamesOf(kVariants); }

}  // namespace

Implementation WgmmaTiledRow() {
  return {.name = "wgmma_tiled",
          .family = Family::kCuda,
          .device_kind = DeviceKind::kCuda,
          .summary = "Hopper's tensor cores by wgmma, fed by its tensor memory accelerator",
          .data_types = {DataType::kFloat16, DataType::kBFloat16},
          .supports = Supports,
          .variant_names = Names,
          .plan = MakePlan};
}

}  // namespace warpcall::matmul
