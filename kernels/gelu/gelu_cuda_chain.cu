// The unfused chain: every elementary operation of the definition is a kernel of its own over
// float32 arrays in memory, in the order of chain_of_loops. Two arrays hold it: `h` is x and later
// x / 2, `t` everything else. For float32 and tanh its ten kernels move 92 bytes an element, 13
// floats read and 10 written, where the definition needs 8. Each alone is written to keep up with
// the memory: the loss is that of not being fused.
#include <cstdint>
#include <limits>
#include <numbers>

#include "kernels/common/saturate.h"
#include "kernels/cuda/elementwise.h"
#include "kernels/gelu/gelu.h"
#include "proto/common/dispatch.h"
#include "proto/common/status_macros.h"

namespace warpcall::gelu {
namespace {

constexpr int kThreads = 256;
constexpr int kWidth = 4;  // elements a thread: 16 bytes of float32
constexpr int kBlockElements = kThreads * kWidth;

// The operations, by what they do to one element of each input.
struct Copy {
  __device__ float operator()(float a) const { return a; }
};

struct Square {
  __device__ float operator()(float a) const { return a * a; }
};

struct Multiply {
  __device__ float operator()(float a, float b) const { return a * b; }
};

struct Add {
  __device__ float operator()(float a, float b) const { return a + b; }
};

struct Scale {
  float factor;
  __device__ float operator()(float a) const { return factor * a; }
};

struct Tanh {
  __device__ float operator()(float a) const { return tanhf(a); }
};

struct Erf {
  __device__ float operator()(float a) const { return erff(a); }
};

struct AddOne {
  __device__ float operator()(float a) const { return 1.0f + a; }
};

struct MultiplyToLimit {
  __device__ float operator()(float h, float t) const {
    // -inf x 0 is where the product has a limit and IEEE arithmetic none.
    return h < std::numeric_limits<float>::lowest() ? -0.0f : h * t;
  }
};

template <int kCount>
struct Floats {
  float values[kCount];
};

template <int kCount, typename T>
__device__ Floats<kCount> Load(const T* at) {
  Floats<kCount> loaded;
  cuda::Vector<T, kCount>::Load(at).Unpack(loaded.values);
  return loaded;
}

template <typename Out, typename Operation, int kCount, typename... More>
__device__ void Store(Out* at, Operation operation, const Floats<kCount>& a, const More&... more) {
  float result[kCount];
#pragma unroll
  for (int i = 0; i < kCount; ++i) result[i] = operation(a.values[i], more.values[i]...);
  cuda::Vector<Out, kCount>::Pack(result).Store(at);
}

// out[i] = operation(in[i]...) for every i; `out` may be one of the inputs.
template <typename Operation, typename Out, typename... In>
__global__ void __launch_bounds__(kThreads)
    Pass(Operation operation, int64_t count, Out* out, const In*... in) {
  const int64_t first = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * kWidth;
  if (first + kWidth <= count) {
    Store(out + first, operation, Load<kWidth>(in + first)...);
  } else {
    for (int64_t i = first; i < count; ++i) Store(out + i, operation, Load<1>(in + i)...);
  }
}

cuda::Grid GridOf(int64_t count) { return cuda::LinearGrid(count, kBlockElements, kThreads); }

struct Chain {
  const LaunchContext& context;
  int64_t count;

  template <typename Out, typename Operation, typename... In>
  absl::Status Enqueue(Out* out, Operation operation, const In*... in) const {
    return cuda::Launch(Pass<Operation, Out, In...>, GridOf(count), context, operation, count, out,
                        in...);
  }
};

// t = tanh(sqrt(2 / pi) (h + 0.044715 h^3))
absl::Status EnqueueTanh(const Chain& chain, const float* h, float* t) {
  constexpr float kScale = 0.797884561f;  // sqrt(2 / pi)
  RETURN_IF_ERROR(chain.Enqueue(t, Square(), h));
  RETURN_IF_ERROR(chain.Enqueue(t, Multiply(), t, h));
  RETURN_IF_ERROR(chain.Enqueue(t, Scale{0.044715f}, t));
  RETURN_IF_ERROR(chain.Enqueue(t, Add(), h, t));
  RETURN_IF_ERROR(chain.Enqueue(t, Scale{kScale}, t));
  return chain.Enqueue(t, Tanh(), t);
}

// t = erf(h / sqrt(2))
absl::Status EnqueueErf(const Chain& chain, const float* h, float* t) {
  RETURN_IF_ERROR(chain.Enqueue(t, Scale{1 / std::numbers::sqrt2_v<float>}, h));
  return chain.Enqueue(t, Erf(), t);
}

constexpr int kKernelsOfTanh = 10;
constexpr int kKernelsOfErf = 6;

// Elements of one array: whole vectors, so that the second one starts aligned.
int64_t ArrayElements(int64_t count) {
  return SaturatingMultiply(CeilDivide(count, kWidth), kWidth);
}

template <typename T>
absl::Status Enqueue(const Chain& chain, bool tanh, const Operands& operands) {
  float* const h = static_cast<float*>(chain.context.workspace);
  float* const t = h + ArrayElements(chain.count);
  RETURN_IF_ERROR(chain.Enqueue(h, Copy(), static_cast<const T*>(operands.inputs[0])));
  RETURN_IF_ERROR(tanh ? EnqueueTanh(chain, h, t) : EnqueueErf(chain, h, t));
  RETURN_IF_ERROR(chain.Enqueue(t, AddOne(), t));
  RETURN_IF_ERROR(chain.Enqueue(h, Scale{0.5f}, h));
  return chain.Enqueue(static_cast<T*>(operands.outputs[0]), MultiplyToLimit(), h, t);
}

// The kernel that moves most: sums and products of two arrays move alike in float32; the sum moves
// more when the last product writes 16 bits.
template <typename T>
cuda::LaunchedKernel LargestKernel(bool tanh, int64_t count) {
  if (tanh) return {Pass<Add, float, float, float>, GridOf(count), kKernelsOfTanh};
  return {Pass<MultiplyToLimit, T, float, float>, GridOf(count), kKernelsOfErf};
}

absl::StatusOr<PlanPtr> MakeChainPlan(const Problem& problem, const PlanContext& context) {
  ASSIGN_OR_RETURN(const int form, FormToPlan(problem, context));
  const int64_t count = problem.inputs[0].elements();
  if (count == 0) return PlanNothing();
  const bool tanh = UsesTanh(problem);
  const Plan::Traits traits = {
      .workspace_bytes = SaturatingBytes(ArrayElements(count), 2 * sizeof(float)), .variant = form};
  return DispatchDataType(problem.inputs[0].data_type, [&]<typename T>(T) {
    return cuda::NewKernelPlan(
        traits, LargestKernel<T>(tanh, count), context,
        [tanh, count](const Operands& operands, const LaunchContext& launch) {
          return Enqueue<T>({launch, count}, tanh, operands);
        });
  });
}

absl::Status Supports(const Problem& problem, const DeviceProperties&) {
  return cuda::CheckLinearGrid(problem.inputs[0].elements(), kBlockElements, "chain_of_kernels");
}

}  // namespace

Implementation ChainOfKernelsRow() {
  return {.name = "chain_of_kernels",
          .family = Family::kManual,
          .device_kind = DeviceKind::kCuda,
          .summary = "one elementary operation per kernel",
          .data_types = {DataType::kFloat32, DataType::kFloat16, DataType::kBFloat16},
          .supports = Supports,
          .variant_names = FormNames,
          .plan = MakeChainPlan};
}

}  // namespace warpcall::gelu
