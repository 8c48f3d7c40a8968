// The unfused chain: widen, largest magnitude, bring near 1, mean, subtract, square, mean, scale,
// weigh and shift, each a kernel of its own with float32 intermediates in memory. For float32 and
// layernorm it moves 64 bytes an element, 10 floats read and 6 written, where the definition needs
// 8. Every kernel is coalesced: what the comparison shows is fusion.
#include <cmath>
#include <cstdint>

#include "kernels/cuda/vector.cuh"
#include "kernels/norm/norm_cuda_launch.h"
#include "kernels/norm/norm_cuda_math.cuh"
#include "proto/common/dispatch.h"

namespace warpcall::norm {
namespace {

constexpr int kThreads = 256;

// statistic[row] = what `operation` makes of the row. A thread's sum has n / 256 terms.
template <typename Operation>
__global__ void __launch_bounds__(kThreads)
    Reduce(Operation operation, const float* t, View view, typename Operation::Result* statistic) {
  using Total = typename Operation::Total;
  __shared__ Total shared[kThreads];
  const int64_t row = BlockIndex();
  if (row >= view.rows) return;
  Total result = 0;
  for (int64_t j = threadIdx.x; j < view.n; j += kThreads)
    result = operation(result, t[row * view.n + j]);
  shared[threadIdx.x] = result;
  for (int left = kThreads / 2; left > 0; left /= 2) {
    __syncthreads();
    if (static_cast<int>(threadIdx.x) < left)
      shared[threadIdx.x] = operation.Merge(shared[threadIdx.x], shared[threadIdx.x + left]);
  }
  if (threadIdx.x == 0) statistic[row] = operation.Finish(shared[0], view);
}

// Sums in float64, as on the CPU: in a row of one value float32's distances would be nothing but
// rounding errors.
struct Mean {
  using Total = double;
  using Result = float;
  __device__ double operator()(double sum, float value) const { return sum + double{value}; }
  __device__ double Merge(double a, double b) const { return a + b; }
  __device__ float Finish(double sum, const View& view) const {
    return static_cast<float>(sum / static_cast<double>(view.n));
  }
};

// NaN is lost here and comes back with the sums.
struct Largest {
  using Total = float;
  using Result = Scale;
  __device__ float operator()(float largest, float value) const {
    return fmaxf(largest, fabsf(value));
  }
  __device__ float Merge(float a, float b) const { return fmaxf(a, b); }
  __device__ Scale Finish(float largest, const View& view) const {
    return ScaleFor(largest, view.epsilon);
  }
};

// out[i] = operation(row, column, i) for every element i. Dividing by 64 bits takes longer than the
// memory does, so it is done only where elements are too many for 32.
template <typename Out, typename Operation>
__global__ void __launch_bounds__(kThreads) Map(Operation operation, View view, Out* out) {
  const int64_t i = BlockIndex() * kThreads + threadIdx.x;
  const int64_t count = view.rows * view.n;
  if (i >= count) return;
  const int64_t row =
      count <= UINT32_MAX ? static_cast<uint32_t>(i) / static_cast<uint32_t>(view.n) : i / view.n;
  out[i] = operation(row, i - row * view.n, i);
}

template <typename T>
struct Widened {
  const T* x;
  __device__ float operator()(int64_t, int64_t, int64_t i) const { return cuda::Widen(x[i]); }
};

struct Scaled {
  const float* t;
  const Scale* scales;
  __device__ float operator()(int64_t row, int64_t, int64_t i) const {
    return t[i] * scales[row].factor;
  }
};

struct Centered {
  const float* t;
  const float* mean;
  __device__ float operator()(int64_t row, int64_t, int64_t i) const { return t[i] - mean[row]; }
};

struct Squared {
  const float* t;
  __device__ float operator()(int64_t, int64_t, int64_t i) const { return t[i] * t[i]; }
};

struct Normalized {
  const float* t;
  const float* mean_square;
  const Scale* scales;
  __device__ float operator()(int64_t row, int64_t, int64_t i) const {
    return t[i] * __frcp_rn(__fsqrt_rn(mean_square[row] + scales[row].epsilon));
  }
};

// With the bias in one: the product alone may overflow where the sum does not.
template <typename T>
struct Weighed {
  const float* t;
  const T* weight;
  const T* bias;  // null: none
  __device__ T operator()(int64_t, int64_t column, int64_t i) const {
    const float by = cuda::Widen(weight[column]);
    return cuda::Narrow<T>(bias == nullptr ? t[i] * by : fmaf(t[i], by, cuda::Widen(bias[column])));
  }
};

struct Chain {
  const LaunchContext& context;
  View view;
  cuda::Grid rows;
  cuda::Grid elements;

  template <typename Out, typename Operation>
  absl::Status EnqueueMap(const Operation& operation, Out* out) const {
    return cuda::Launch(Map<Out, Operation>, elements, context, operation, view, out);
  }

  template <typename Operation>
  absl::Status EnqueueReduce(const float* t, typename Operation::Result* statistic) const {
    return cuda::Launch(Reduce<Operation>, rows, context, Operation{}, t, view, statistic);
  }
};

template <typename T>
absl::Status LaunchChain(const Chain& chain, const Operands& operands) {
  const View& view = chain.view;
  const RowTensors<T> tensors = TensorsOf<T>(view, operands);
  auto* const scales = static_cast<Scale*>(chain.context.workspace);
  auto* const statistic = reinterpret_cast<float*>(scales + view.rows);
  float* const t = statistic + view.rows;
  float* const squares = t + view.rows * view.n;
  RETURN_IF_ERROR(chain.EnqueueMap(Widened<T>{tensors.x}, t));
  RETURN_IF_ERROR(chain.EnqueueReduce<Largest>(t, scales));
  RETURN_IF_ERROR(chain.EnqueueMap(Scaled{t, scales}, t));
  if (view.centered) {
    RETURN_IF_ERROR(chain.EnqueueReduce<Mean>(t, statistic));
    RETURN_IF_ERROR(chain.EnqueueMap(Centered{t, statistic}, t));
  }
  RETURN_IF_ERROR(chain.EnqueueMap(Squared{t}, squares));
  RETURN_IF_ERROR(chain.EnqueueReduce<Mean>(squares, statistic));
  RETURN_IF_ERROR(chain.EnqueueMap(Normalized{t, statistic, scales}, t));
  return chain.EnqueueMap(Weighed<T>{t, tensors.weight, tensors.bias}, tensors.y);
}

size_t WorkspaceBytes(const View& view) {
  const int64_t arrays = SaturatingMultiply(SaturatingMultiply(view.rows, view.n), 2);
  return SaturatingBytes(SaturatingAdd(arrays, SaturatingMultiply(view.rows, 3)), sizeof(float));
}

// The plan reports the squares' shape: no other kernel moves more, 8 bytes an element.
absl::StatusOr<PlanPtr> MakeChainPlan(const Problem& problem, const PlanContext& context) {
  if (problem.inputs[kX].elements() == 0) return PlanNothing();
  if (context.variant != kRowsChoice) RETURN_IF_ERROR(CheckVariantNumber(context.variant, 1));
  const View view = ViewOf(problem);
  const cuda::Grid rows = GridOf(view.rows, kThreads);
  const cuda::Grid elements = GridOf(CeilDivide(problem.inputs[kX].elements(), kThreads), kThreads);
  return DispatchDataType(problem.inputs[kX].data_type, [&]<typename T>(T) {
    return cuda::NewKernelPlan(
        {.workspace_bytes = WorkspaceBytes(view)},
        {Map<float, Squared>, elements, /*gpu_kernels=*/view.centered ? 9 : 7}, context,
        [view, rows, elements](const Operands& operands, const LaunchContext& launch) {
          return LaunchChain<T>({launch, view, rows, elements}, operands);
        });
  });
}

}  // namespace

Implementation ChainOfKernelsRow() {
  return {.name = "chain_of_kernels",
          .family = Family::kManual,
          .device_kind = DeviceKind::kCuda,
          .summary = "one elementary operation per kernel",
          .data_types = {DataType::kFloat32, DataType::kFloat16, DataType::kBFloat16},
          .supports = SupportsAll,
          .plan = MakeChainPlan};
}

}  // namespace warpcall::norm
