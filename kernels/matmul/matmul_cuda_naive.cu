// The baseline for tiling: a thread per output walks along a row of a and a column of b. Every
// element of a is read n times and every element of b m times, save where the caches help. Threads
// of a warp are neighbours in n: they read neighbours of b, or the same element where b is
// transposed, and write neighbours of c.
#include <algorithm>
#include <cstdint>
#include <iterator>

#include "kernels/common/saturate.h"
#include "kernels/cuda/chunked_sum.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/vector.cuh"
#include "kernels/matmul/matmul.h"
#include "kernels/matmul/matmul_cuda_share.cuh"
#include "kernels/matmul/matmul_cuda_tiling.h"
#include "proto/common/dispatch.h"

namespace warpcall::matmul {
namespace {

constexpr int kThreads = 256;

// Steps to the next row and to the next column of a matrix of a, and of b.
struct Strides {
  int64_t a_row;
  int64_t a_column;
  int64_t b_row;
  int64_t b_column;
};

Strides StridesOf(const Arrangement& arrangement) {
  const Arguments& arguments = arrangement.arguments;
  const bool a_by_depth = arrangement.a == Adjacent::kDepth;
  const bool b_by_depth = arrangement.b == Adjacent::kDepth;
  return {.a_row = a_by_depth ? arguments.a_stride : 1,
          .a_column = a_by_depth ? 1 : arguments.a_stride,
          .b_row = b_by_depth ? 1 : arguments.b_stride,
          .b_column = b_by_depth ? arguments.b_stride : 1};
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    ThreadPerOutput(const __grid_constant__ Arguments arguments,
                    const __grid_constant__ Strides strides) {
  const int64_t matrix = arguments.m * arguments.n;
  const int64_t outputs = matrix * arguments.batches;
  const int64_t threads = int64_t{1} * gridDim.x * kThreads;
  for (int64_t output = int64_t{1} * blockIdx.x * kThreads + threadIdx.x; output < outputs;
       output += threads) {
    const BatchPlace at = PlaceOfBatch(arguments.batch, output / matrix);
    const int64_t i = output % matrix / arguments.n;
    const int64_t j = output % arguments.n;
    const T* const a = static_cast<const T*>(arguments.a) + at.a + i * strides.a_row;
    const T* const b = static_cast<const T*>(arguments.b) + at.b + j * strides.b_column;
    const float sum = cuda::ChunkedSum(arguments.k, [&](int64_t p, float before) {
      return fmaf(cuda::Widen(a[p * strides.a_column]), cuda::Widen(b[p * strides.b_row]), before);
    });
    static_cast<T*>(arguments.c)[output] = cuda::Narrow<T>(sum);
  }
}

cuda::Grid GridFor(const Problem& problem) {
  const int64_t blocks = CeilDivide(problem.outputs[0].elements(), kThreads);
  return {.blocks = dim3(static_cast<uint32_t>(std::min(blocks, cuda::kGridMax))),
          .threads = dim3(kThreads)};
}

absl::StatusOr<PlanPtr> MakeNaivePlan(const Problem& problem, const PlanContext& context) {
  if (problem.outputs[0].elements() == 0) return PlanNothing();
  const cuda::Grid grid = GridFor(problem);
  const Arrangement arrangement = ArrangementOf(problem);
  return DispatchDataType(problem.outputs[0].data_type, [&]<typename T>(T) {
    return cuda::NewKernelPlan(
        {}, {ThreadPerOutput<T>, grid}, context,
        [grid, arrangement](const Operands& operands, const LaunchContext& launch) {
          Arguments arguments = arrangement.arguments;
          arguments.a = operands.inputs[0];
          arguments.b = operands.inputs[1];
          arguments.c = operands.outputs[0];
          return cuda::Launch(ThreadPerOutput<T>, grid, launch, arguments, StridesOf(arrangement));
        });
  });
}

}  // namespace

Implementation ThreadPerOutputRow() {
  return {.name = "thread_per_output",
          .family = Family::kManual,
          .device_kind = DeviceKind::kCuda,
          .summary = "a thread per output, no tiling, float32 sums",
          .data_types = {std::begin(kDataTypes), std::end(kDataTypes)},
          .supports = SupportsAll,
          .plan = MakeNaivePlan};
}

}  // namespace warpcall::matmul
