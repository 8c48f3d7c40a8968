// The implementation wgmma_tf32: float32 where precision=tf32 permits it. wgmma truncates each
// element to its upper 19 bits, so operands lose up to 2^-10 of their value. A NaN whose fraction
// lies only in the lower 13 bits, which no operation makes, counts as infinity. wgmma takes
// operands along k: a b[k,n] is transposed in registers, an a[k,m] is first transposed into the
// workspace.
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "kernels/matmul/matmul.h"
#include "kernels/matmul/matmul_cuda_wgmma.cuh"
#include "kernels/matmul/matmul_cuda_wgmma_kernels.h"
#include "kernels/matmul/matmul_cuda_wgmma_plan.h"
#include "proto/common/status_macros.h"

namespace warpcall::matmul {
namespace {

constexpr WgmmaVariants kVariants{WgmmaLayouts::kBAlongK};

template <int... kNumbers>
WgmmaKernelPointer KernelFrom(int variant, std::integer_sequence<int, kNumbers...>) {
  static constexpr WgmmaKernelPointer kTable[] = {
      WgmmaTiled<float, WgmmaVariantAt<kNumbers, kVariants.layouts>>...};
  return kTable[variant];
}

absl::StatusOr<WgmmaTiling> TilingOf(const Problem& problem, const DeviceProperties& device,
                                     int variant) {
  if (std::get<std::string>(problem.attributes[kPrecision]) != "tf32")
    return absl::UnimplementedError("wgmma_tf32 takes precision=tf32 alone, got precision=ieee");
  return MakeWgmmaTiling({.product = problem,
                          .arrangement = ArrangementOf(problem),
                          .variants = kVariants,
                          .variant = variant},
                         device);
}

absl::Status Supports(const Problem& problem, const DeviceProperties& device) {
  RETURN_IF_ERROR(CheckWgmmaArchitecture("wgmma_tf32", device));
  if (!HasSums(problem)) return absl::OkStatus();
  return TilingOf(problem, device, kRowsChoice).status();
}

absl::StatusOr<PlanPtr> MakePlan(const Problem& problem, const PlanContext& context) {
  if (!HasSums(problem)) return PlanOfZeros(problem);
  ASSIGN_OR_RETURN(const WgmmaTiling tiling, TilingOf(problem, *context.device, context.variant));
  const WgmmaKernelPointer kernel =
      KernelFrom(tiling.variant, std::make_integer_sequence<int, kVariants.Count()>());
  return NewWgmmaPlan(kernel, tiling, context);
}

std::vector<std::string> Names(DataType) { return NamesOf(kVariants); }

}  // namespace

Implementation WgmmaTf32Row() {
  return {.name = "wgmma_tf32",
          .family = Family::kCuda,
          .device_kind = DeviceKind::kCuda,
          .summary = "wgmma_tiled on float32 with precision=tf32",
          .data_types = {DataType::kFloat32},
          .supports = Supports,
          .variant_names = Names,
          .plan = MakePlan};
}

}  // namespace warpcall::matmul
