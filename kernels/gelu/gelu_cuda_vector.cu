// One pass: vectors of 16 bytes, the formula in registers in float, each byte moved once. In 16-bit
// types an H200 has time for some 29 instructions an element before they, not the memory, set the
// pace; both forms take about half of that.
#include <cstdint>

#include "kernels/cuda/early_launch.h"
#include "kernels/cuda/elementwise.h"
#include "kernels/gelu/gelu.h"
#include "kernels/gelu/gelu_cuda_forms.cuh"
#include "proto/common/dispatch.h"

namespace warpcall::gelu {
namespace {

template <typename Form>
struct ApplyForm {
  template <typename T, int kWidth>
  __device__ cuda::Vector<T, kWidth> operator()(const cuda::Vector<T, kWidth>& x) const {
    float values[kWidth];
    x.Unpack(values);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) values[i] = Form::Apply(values[i]);
    return cuda::Vector<T, kWidth>::Pack(values);
  }
};

template <typename Form, typename T>
__global__ void __launch_bounds__(cuda::kMapThreads) Gelu(const T* x, T* y, int64_t count) {
  cuda::MapTile(x, y, count, ApplyForm<Form>());
}

template <typename T>
auto* KernelFor(const Problem& problem) {
  return UsesTanh(problem) ? &Gelu<TanhForm, T> : &Gelu<ErfForm, T>;
}

template <typename T>
cuda::Grid GridFor(const Problem& problem) {
  return cuda::LinearGrid(problem.inputs[0].elements(), cuda::kMapTileElements<T>,
                          cuda::kMapThreads);
}

absl::Status Supports(const Problem& problem, const DeviceProperties&) {
  const TensorSpec& x = problem.inputs[0];
  return DispatchDataType(x.data_type, [&]<typename T>(T) {
    return cuda::CheckLinearGrid(x.elements(), cuda::kMapTileElements<T>, "vectorized");
  });
}

absl::StatusOr<PlanPtr> MakeVectorPlan(const Problem& problem, const PlanContext& context) {
  ASSIGN_OR_RETURN(const int form, FormToPlan(problem, context));
  const int64_t elements = problem.inputs[0].elements();
  if (elements == 0) return PlanNothing();
  return DispatchDataType(problem.inputs[0].data_type, [&]<typename T>(T) {
    auto* const kernel = KernelFor<T>(problem);
    const cuda::Grid grid = cuda::EarlyGridOf(reinterpret_cast<const void*>(kernel),
                                              GridFor<T>(problem), *context.device);
    return cuda::NewKernelPlan(
        {.variant = form, .may_be_replayed = true}, {kernel, grid}, context,
        [kernel, grid, elements](const Operands& operands, const LaunchContext& launch) {
          return cuda::Launch(kernel, grid, launch, static_cast<const T*>(operands.inputs[0]),
                              static_cast<T*>(operands.outputs[0]), elements);
        });
  });
}

}  // namespace

Implementation VectorizedRow() {
  return {.name = "vectorized",
          .family = Family::kCuda,
          .device_kind = DeviceKind::kCuda,
          .summary = "one pass in vectors of 16 bytes, the formula in registers",
          .data_types = {DataType::kFloat32, DataType::kFloat16, DataType::kBFloat16},
          .supports = Supports,
          .suits_host_memory = true,
          .variant_names = FormNames,
          .plan = MakeVectorPlan};
}

}  // namespace warpcall::gelu
