// The truth that the other rows are checked against: float64 products and sums in the order of k,
// one rounding at the end.
#include <algorithm>

#include "kernels/common/dispatch.h"
#include "kernels/common/round.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/matmul/matmul.h"

namespace warpcall::matmul {
namespace {

// Sums that one pass over k keeps on the stack: a cache line or more of each row of b is used at
// once.
constexpr int64_t kColumnsPerPass = 64;

template <typename T>
void Multiply(const Shape& shape, const Operands& operands, cpu::ThreadPool& pool) {
  const auto row = [&](int64_t index) {
    const Offsets at = shape.BatchOffsets(index / shape.m);
    const int64_t i = index % shape.m;
    const T* a = static_cast<const T*>(operands.inputs[0]) + at.a + i * shape.a_row_stride;
    const T* b = static_cast<const T*>(operands.inputs[1]) + at.b;
    T* c = static_cast<T*>(operands.outputs[0]) + at.c + i * shape.n;
    for (int64_t j0 = 0; j0 < shape.n; j0 += kColumnsPerPass) {
      const int64_t columns = std::min(kColumnsPerPass, shape.n - j0);
      double sums[kColumnsPerPass] = {};
      for (int64_t p = 0; p < shape.k; ++p) {
        const double x = ToFloat(a[p * shape.a_column_stride]);
        const T* y = b + p * shape.b_row_stride + j0 * shape.b_column_stride;
        for (int64_t j = 0; j < columns; ++j) sums[j] += x * ToFloat(y[j * shape.b_column_stride]);
      }
      for (int64_t j = 0; j < columns; ++j) c[j0 + j] = FromDouble<T>(sums[j]);
    }
  };
  pool.ParallelFor(shape.batches() * shape.m, 1, [&](int64_t begin, int64_t end) {
    for (int64_t index = begin; index < end; ++index) row(index);
  });
}

absl::Status Launch(const Problem& problem, const Operands& operands,
                    const LaunchContext& context) {
  if (problem.outputs[0].elements() == 0) return absl::OkStatus();
  const Shape shape = DecodeShape(problem);
  cpu::ThreadPool& pool = cpu::PoolOf(context);
  DispatchDataType(problem.outputs[0].data_type,
                   [&](auto type) { Multiply<decltype(type)>(shape, operands, pool); });
  return absl::OkStatus();
}

}  // namespace

Implementation Float64Row() {
  return {.name = "float64",
          .family = Family::kReference,
          .device_kind = DeviceKind::kCpu,
          .summary = "plain loops, float64 inside",
          .data_types = {std::begin(kDataTypes), std::end(kDataTypes)},
          .supports = SupportsAll,
          .workspace_bytes = nullptr,
          .launch = Launch,
          .shape = nullptr};
}

}  // namespace warpcall::matmul
