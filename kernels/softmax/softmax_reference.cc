// The truth: the definition in float64, row by row, rounded once.
#include <algorithm>
#include <cmath>

#include "kernels/common/dispatch.h"
#include "kernels/common/round.h"
#include "kernels/common/saturate.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/softmax/softmax.h"

namespace warpcall::softmax {
namespace {

constexpr int64_t kGrain = 4096;  // elements, at some 20 ns each

// x and y point at the row's element 0, `stride` apart. NaN in x may be lost in the maximum, never
// in the sum; infinity as the maximum gives infinity - infinity, NaN.
template <typename T>
void Row(const T* x, T* y, int64_t n, int64_t stride) {
  double max = -INFINITY;
  for (int64_t j = 0; j < n; ++j) max = std::max<double>(max, ToFloat(x[j * stride]));
  double sum = 0;
  for (int64_t j = 0; j < n; ++j) sum += std::exp(ToFloat(x[j * stride]) - max);
  for (int64_t j = 0; j < n; ++j) {
    y[j * stride] = FromDouble<T>(std::exp(ToFloat(x[j * stride]) - max) / sum);
  }
}

absl::Status Launch(const Problem& problem, const Operands& operands,
                    const LaunchContext& context) {
  if (problem.inputs[0].elements() == 0) return absl::OkStatus();
  const View view = ViewOf(problem);
  DispatchDataType(problem.inputs[0].data_type, [&]<typename T>(T) {
    const T* const x = static_cast<const T*>(operands.inputs[0]);
    T* const y = static_cast<T*>(operands.outputs[0]);
    cpu::PoolOf(context).ParallelFor(view.rows(), CeilDivide(kGrain, view.n),
                                     [&](int64_t begin, int64_t end) {
                                       for (int64_t row = begin; row < end; ++row) {
                                         const int64_t offset = view.RowOffset(row);
                                         Row(x + offset, y + offset, view.n, view.inner);
                                       }
                                     });
  });
  return absl::OkStatus();
}

}  // namespace

Implementation Float64Row() {
  return {.name = "float64",
          .family = Family::kReference,
          .device_kind = DeviceKind::kCpu,
          .summary = "the definition in float64",
          .data_types = {DataType::kFloat32, DataType::kFloat16, DataType::kBFloat16},
          .supports = SupportsAll,
          .workspace_bytes = nullptr,
          .launch = Launch,
          .shape = nullptr};
}

}  // namespace warpcall::softmax
