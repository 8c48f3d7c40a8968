// The driver's own copy.
#include <cuda_runtime_api.h>

#include "kernels/cuda/cuda_status.h"
#include "kernels/identity/identity.h"
#include "kernels/plan.h"

namespace warpcall::identity {
namespace {

absl::Status Launch(const Problem& problem, const Operands& operands,
                    const LaunchContext& context) {
  const size_t bytes = problem.inputs[0].bytes();
  if (bytes == 0) return absl::OkStatus();
  return cuda::ToStatus(
      cudaMemcpyAsync(operands.outputs[0], operands.inputs[0], bytes, cudaMemcpyDefault,
                      static_cast<cudaStream_t>(context.stream)),
      "copying");
}

}  // namespace

// suits_host_memory stays false: a copy from host memory to host memory is the host's work.
Implementation DeviceMemcpyRow() {
  return {.name = "device_memcpy",
          .family = Family::kLibrary,
          .device_kind = DeviceKind::kCuda,
          .summary = "cudaMemcpyAsync",
          .data_types = {DataType::kFloat32, DataType::kFloat16, DataType::kBFloat16},
          .supports = SupportsAll,
          // The plan reports no launch shape: a copy engine works, or a kernel of the driver's
          // whose shape is unknown.
          .plan = PlanBy(Launch)};
}

}  // namespace warpcall::identity
