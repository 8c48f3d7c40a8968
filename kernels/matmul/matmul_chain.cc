// The baseline for blocking: each output is one walk along a row of a and a column of b, and
// nothing is reused.
#include <algorithm>

#include "kernels/cpu/chunked_sum.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/matmul/matmul.h"
#include "kernels/plan.h"
#include "proto/common/dispatch.h"

namespace warpcall::matmul {
namespace {

// A share of work that is worth waking a thread for: about 25 us, as each addition of a chain waits
// four cycles for the one before.
constexpr int64_t kTermsPerChunk = 1 << 14;

template <typename T>
void Multiply(const Shape& shape, const Operands& operands, const cpu::Workers& workers) {
  const int64_t matrix = shape.m * shape.n;
  const auto dot = [&](int64_t output) {
    const Offsets at = shape.BatchOffsets(output / matrix);
    const int64_t i = output % matrix / shape.n;
    const int64_t j = output % shape.n;
    const T* const a = static_cast<const T*>(operands.inputs[0]);  // null when k is 0, as b is
    const T* const b = static_cast<const T*>(operands.inputs[1]);
    const int64_t row = at.a + i * shape.a_row_stride;
    const int64_t column = at.b + j * shape.b_column_stride;
    const float sum = cpu::ChunkedSum(shape.k, workers.stop(), [&](int64_t p) {
      return ToFloat(a[row + p * shape.a_column_stride]) *
             ToFloat(b[column + p * shape.b_row_stride]);
    });
    static_cast<T*>(operands.outputs[0])[at.c + i * shape.n + j] = FromFloat<T>(sum);
  };
  const int64_t grain = std::max<int64_t>(1, kTermsPerChunk / std::max<int64_t>(1, shape.k));
  workers.ParallelFor(shape.batches() * matrix, grain, [&](int64_t begin, int64_t end) {
    for (int64_t output = begin; output < end; ++output) dot(output);
  });
}

absl::Status Launch(const Problem& problem, const Operands& operands,
                    const LaunchContext& context) {
  if (problem.outputs[0].elements() == 0) return absl::OkStatus();
  const Shape shape = DecodeShape(problem);
  const cpu::Workers workers = cpu::WorkersOf(context);
  DispatchDataType(problem.outputs[0].data_type,
                   [&](auto type) { Multiply<decltype(type)>(shape, operands, workers); });
  return absl::OkStatus();
}

}  // namespace

Implementation OneDotPerOutputRow() {
  return {.name = "one_dot_per_output",
          .family = Family::kManual,
          .device_kind = DeviceKind::kCpu,
          .summary = "one output at a time, no tiling, float32 sums",
          .data_types = {std::begin(kDataTypes), std::end(kDataTypes)},
          .supports = SupportsAll,
          .plan = PlanBy(Launch)};
}

}  // namespace warpcall::matmul
