// One thread for each element, as a first kernel would be written.
#include <cstdint>

#include "kernels/cuda/elementwise.h"
#include "kernels/identity/identity.h"
#include "proto/common/dispatch.h"

namespace warpcall::identity {
namespace {

constexpr int kThreads = 256;

template <typename T>
__global__ void __launch_bounds__(kThreads) CopyElement(const T* x, T* y, int64_t count) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < count) y[i] = x[i];
}

cuda::Grid GridOf(const Problem& problem) {
  return cuda::LinearGrid(problem.inputs[0].elements(), kThreads, kThreads);
}

absl::Status Supports(const Problem& problem, const DeviceProperties&) {
  return cuda::CheckLinearGrid(problem.inputs[0].elements(), kThreads, "element_per_thread");
}

absl::StatusOr<PlanPtr> MakeCopyPlan(const Problem& problem, const PlanContext& context) {
  const int64_t elements = problem.inputs[0].elements();
  if (elements == 0) return PlanNothing();
  const cuda::Grid grid = GridOf(problem);
  return DispatchDataType(problem.inputs[0].data_type, [&]<typename T>(T) {
    return cuda::NewKernelPlan(
        {.may_be_replayed = true}, {CopyElement<T>, grid}, context,
        [grid, elements](const Operands& operands, const LaunchContext& launch) {
          return cuda::Launch(CopyElement<T>, grid, launch,
                              static_cast<const T*>(operands.inputs[0]),
                              static_cast<T*>(operands.outputs[0]), elements);
        });
  });
}

}  // namespace

Implementation ElementPerThreadRow() {
  return {.name = "element_per_thread",
          .family = Family::kManual,
          .device_kind = DeviceKind::kCuda,
          .summary = "a thread copies one element",
          .data_types = {DataType::kFloat32, DataType::kFloat16, DataType::kBFloat16},
          .supports = Supports,
          .suits_host_memory = true,
          .plan = MakeCopyPlan};
}

}  // namespace warpcall::identity
