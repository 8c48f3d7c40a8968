// One thread for each element, as a first kernel would be written.
#include <cstdint>

#include "kernels/common/dispatch.h"
#include "kernels/cuda/elementwise.h"
#include "kernels/identity/identity.h"

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

absl::Status Launch(const Problem& problem, const Operands& operands,
                    const LaunchContext& context) {
  const TensorSpec& spec = problem.inputs[0];
  if (spec.elements() == 0) return absl::OkStatus();
  return DispatchDataType(spec.data_type, [&]<typename T>(T) {
    return cuda::Launch(CopyElement<T>, GridOf(problem), context,
                        static_cast<const T*>(operands.inputs[0]),
                        static_cast<T*>(operands.outputs[0]), spec.elements());
  });
}

absl::StatusOr<LaunchShape> Shape(const Problem& problem, const DeviceProperties& device) {
  const TensorSpec& spec = problem.inputs[0];
  if (spec.elements() == 0) return LaunchShape();
  return DispatchDataType(spec.data_type, [&]<typename T>(T) {
    return cuda::ShapeOf(CopyElement<T>, GridOf(problem), device);
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
          .workspace_bytes = nullptr,
          .launch = Launch,
          .shape = Shape,
          .suits_host_memory = true,
          .may_be_replayed = true};
}

}  // namespace warpcall::identity
