#include <algorithm>

#include "kernels/common/saturate.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/vector.cuh"
#include "kernels/linear/linear_cuda_finish.cuh"
#include "kernels/linear/linear_cuda_sums.h"
#include "proto/common/check.h"
#include "proto/common/dispatch.h"

namespace warpcall::linear {
namespace {

constexpr int kThreads = 256;
// Rows that a thread takes: it reads their bias once.
constexpr int kRows = 4;

struct Sums {
  const float* partial;
  uint32_t splits;
  int64_t rows;
  int64_t n;
};

// A block has blockDim.x vectors of kWidth columns side by side, of blockDim.y rows at a time.
template <typename T, int kWidth>
__global__ void __launch_bounds__(kThreads) FinishSums(Sums sums, Finish<T> finish, T* y) {
  const int64_t first = int64_t{1} * blockIdx.x * blockDim.y * kRows + threadIdx.y;
  const int64_t count = sums.rows * sums.n;
  const int64_t step = int64_t{1} * gridDim.y * blockDim.x * kWidth;
  for (int64_t column = (int64_t{1} * blockIdx.y * blockDim.x + threadIdx.x) * kWidth;
       column < sums.n; column += step) {
    const auto bias = finish.From(column).template BiasOf<kWidth>(kWidth);
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const int64_t row = first + int64_t{1} * i * blockDim.y;
      if (row >= sums.rows) break;
      const int64_t at = row * sums.n + column;
      float values[kWidth] = {};
      for (uint32_t split = 0; split < sums.splits; ++split) {
        float part[kWidth];
        cuda::Vector<float, kWidth>::Load(sums.partial + split * count + at).Unpack(part);
#pragma unroll
        for (int e = 0; e < kWidth; ++e) values[e] += part[e];
      }
      finish.Apply(bias, values);
      cuda::Vector<T, kWidth>::Pack(values).Store(y + at);
    }
  }
}

// Puts as many threads side by side as a row has vectors, up to a block.
cuda::Grid GridOf(const SumsFinish& finish, int width) {
  constexpr int64_t kBlocksDownMax = 65535;
  const int64_t vectors = CeilDivide(finish.n, width);
  int across = 1;
  while (across < vectors && across < kThreads) across *= 2;
  const int down = kThreads / across;
  const int64_t row_blocks = CeilDivide(finish.rows, down * kRows);
  const int64_t column_blocks = std::min(CeilDivide(vectors, across), kBlocksDownMax);
  return {.blocks = dim3(static_cast<unsigned>(row_blocks), static_cast<unsigned>(column_blocks)),
          .threads = dim3(static_cast<unsigned>(across), static_cast<unsigned>(down))};
}

template <typename T>
struct Way {
  void (*kernel)(Sums, Finish<T>, T*);
  cuda::Grid grid;
};

template <typename T>
Way<T> WayOf(const SumsFinish& finish) {
  constexpr int kWidth = 4;
  if (finish.n % kWidth == 0) return {FinishSums<T, kWidth>, GridOf(finish, kWidth)};
  return {FinishSums<T, 1>, GridOf(finish, 1)};
}

}  // namespace

absl::Status SumsFinish::Enqueue(const float* partial, const Operands& operands,
                                 const LaunchContext& context) const {
  WARPCALL_DCHECK(rows > 0 && n > 0, rows, n);
  WARPCALL_DCHECK(splits == 0 || partial != nullptr, splits);
  return DispatchDataType(data_type, [&]<typename T>(T) {
    const Way<T> way = WayOf<T>(*this);
    return cuda::Launch(way.kernel, way.grid, context, Sums{partial, splits, rows, n},
                        Finish<T>{static_cast<const T*>(operands.inputs[kBias]), activation},
                        static_cast<T*>(operands.outputs[0]));
  });
}

SumsFinish FinishOfSums(const Problem& problem, uint32_t splits) {
  const TensorSpec& y = problem.outputs[0];
  const int64_t n = y.dims.back();
  return {.data_type = y.data_type,
          .activation = ActivationOf(problem),
          .rows = n == 0 ? 0 : y.elements() / n,
          .n = n,
          .splits = splits};
}

PlanPtr PlanWithoutSums(const Problem& problem, const PlanContext& context) {
  if (problem.outputs[0].elements() == 0) return PlanNothing();
  const SumsFinish finish = FinishOfSums(problem, 0);
  return DispatchDataType(finish.data_type, [&]<typename T>(T) {
    const Way<T> way = WayOf<T>(finish);
    return cuda::NewKernelPlan({}, {way.kernel, way.grid}, context,
                               [finish](const Operands& operands, const LaunchContext& launch) {
                                 return finish.Enqueue(nullptr, operands, launch);
                               });
  });
}

}  // namespace warpcall::linear
