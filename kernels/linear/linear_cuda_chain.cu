// The unfused chain: product, bias and activation, each a kernel of its own with float32 sums in
// memory. A thread takes one output of the product; nothing is reused but by the caches.
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "kernels/common/saturate.h"
#include "kernels/cuda/chunked_sum.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/vector.cuh"
#include "kernels/linear/linear.h"
#include "kernels/plan.h"
#include "proto/common/dispatch.h"

namespace warpcall::linear {
namespace {

constexpr int kThreads = 256;

struct Size {
  int64_t rows;
  int64_t k;
  int64_t n;

  __host__ __device__ int64_t outputs() const { return rows * n; }
};

__device__ int64_t OutputIndex() {
  return (static_cast<int64_t>(blockIdx.y) * gridDim.x + blockIdx.x) * kThreads + threadIdx.x;
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    Multiply(const T* x, const T* weight, float* t, Size size) {
  const int64_t i = OutputIndex();
  if (i >= size.outputs()) return;
  const T* const row = x + i / size.n * size.k;
  const T* const column = weight + i % size.n * size.k;
  t[i] = cuda::ChunkedSum(size.k, [&](int64_t p, float before) {
    return fmaf(cuda::Widen(row[p]), cuda::Widen(column[p]), before);
  });
}

template <typename T>
__global__ void __launch_bounds__(kThreads) AddBias(float* t, const T* bias, Size size) {
  const int64_t i = OutputIndex();
  if (i < size.outputs()) t[i] += cuda::Widen(bias[i % size.n]);
}

// 1 + tanh(a) as 2 / (1 + exp(-2a)) keeps the sum's digits where tanh(a) is near -1. The limit for
// -infinity, for which the formulas give NaN, is 0.
__device__ float Activated(matmul::Activation activation, float x) {
  switch (activation) {
    case matmul::Activation::kNone:
      return x;
    case matmul::Activation::kRelu:
      return x < 0 ? 0.0f : x;
    case matmul::Activation::kGelu: {
      constexpr float kFactor = 0.797884561f;  // sqrt(2 / pi)
      return x == -INFINITY ? -0.0f : x / (1 + expf(-2 * kFactor * fmaf(0.044715f * x * x, x, x)));
    }
    case matmul::Activation::kGeluErf:
      return x == -INFINITY ? -0.0f : 0.5f * x * erfcf(x * -0.707106781f);
  }
  return x;
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    Activate(const float* t, matmul::Activation activation, T* y, int64_t count) {
  const int64_t i = OutputIndex();
  if (i < count) y[i] = cuda::Narrow<T>(Activated(activation, t[i]));
}

cuda::Grid GridOf(int64_t outputs) {
  const int64_t blocks = CeilDivide(outputs, kThreads);
  const int64_t x = std::min(blocks, cuda::kGridMax);
  return {.blocks = dim3(static_cast<unsigned>(x), static_cast<unsigned>(CeilDivide(blocks, x))),
          .threads = dim3(kThreads)};
}

// The plan reports the product's launch shape.
absl::StatusOr<PlanPtr> MakeChainPlan(const Problem& problem, const PlanContext& context) {
  if (problem.outputs[0].elements() == 0) return PlanNothing();
  if (context.variant != kRowsChoice) RETURN_IF_ERROR(CheckVariantNumber(context.variant, 1));
  const Problem product = ProductOf(problem);
  const Dims& x = product.inputs[0].dims;
  const Size size{x[0], x[1], product.outputs[0].dims[1]};
  const cuda::Grid grid = GridOf(size.outputs());
  const matmul::Activation activation = ActivationOf(problem);
  const Plan::Traits traits = {.workspace_bytes = SaturatingBytes(size.outputs(), sizeof(float))};
  return DispatchDataType(problem.inputs[kX].data_type, [&]<typename T>(T) {
    return cuda::NewKernelPlan(
        traits, {Multiply<T>, grid, /*gpu_kernels=*/3}, context,
        [size, grid, activation](const Operands& operands,
                                 const LaunchContext& launch) -> absl::Status {
          const auto input = [&](int i) {
            return static_cast<const T*>(operands.inputs[static_cast<size_t>(i)]);
          };
          float* const t = static_cast<float*>(launch.workspace);
          RETURN_IF_ERROR(
              cuda::Launch(Multiply<T>, grid, launch, input(kX), input(kWeight), t, size));
          RETURN_IF_ERROR(cuda::Launch(AddBias<T>, grid, launch, t, input(kBias), size));
          return cuda::Launch(Activate<T>, grid, launch, static_cast<const float*>(t), activation,
                              static_cast<T*>(operands.outputs[0]), size.outputs());
        });
  });
}

}  // namespace

Implementation ChainOfKernelsRow() {
  return {.name = "chain_of_kernels",
          .family = Family::kManual,
          .device_kind = DeviceKind::kCuda,
          .summary = "product without tiling, bias and activation, each a kernel",
          .data_types = {DataType::kFloat32, DataType::kFloat16, DataType::kBFloat16},
          .supports = SupportsAll,
          .plan = MakeChainPlan};
}

}  // namespace warpcall::linear
