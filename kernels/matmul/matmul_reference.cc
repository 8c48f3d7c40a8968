// The truth that the other rows are checked against: float64 products and sums in the order of k,
// one rounding at the end.
#include <algorithm>

#include "kernels/common/saturate.h"
#include "kernels/cpu/definition_row.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/matmul/matmul.h"
#include "proto/common/check.h"
#include "proto/common/dispatch.h"

namespace warpcall::matmul {
namespace {

// Sums that one pass over k keeps on the stack: a cache line or more of each row of b is used at
// once.
constexpr int64_t kColumnsPerPass = 64;

// Rows are taken together up to this number of products, some microseconds. In smaller slices the
// time to decode the problem for each would count.
constexpr int64_t kSliceProducts = 4096;

// Rows of c, over all matrices: c is dense, so row i is at i * n.
struct Rows {
  explicit Rows(const Shape& shape)
      : count(shape.batches() * shape.m),
        per_slice(std::max<int64_t>(
            1, kSliceProducts / SaturatingMultiply(shape.n, std::max<int64_t>(1, shape.k)))) {}

  int64_t count;
  int64_t per_slice;
};

int64_t Slices(const Problem& problem) {
  if (problem.outputs[0].elements() == 0) return 0;
  const Rows rows(DecodeShape(problem));
  return CeilDivide(rows.count, rows.per_slice);
}

Slice SliceOf(const Shape& shape, int64_t index) {
  const Rows rows(shape);
  const int64_t first = index * rows.per_slice;
  WARPCALL_DCHECK(first >= 0 && first < rows.count, index, rows.count);
  return {.first = first * shape.n,
          .stride = 1,
          .count = std::min(rows.per_slice, rows.count - first) * shape.n};
}

Slice SliceAt(const Problem& problem, int64_t index) {
  return SliceOf(DecodeShape(problem), index);
}

template <typename T>
void Row(const Shape& shape, const Operands& inputs, int64_t index, TakeValues take) {
  const Offsets at = shape.BatchOffsets(index / shape.m);
  const int64_t i = index % shape.m;
  const T* const a = static_cast<const T*>(inputs.inputs[0]);  // null when k is 0, as b is
  const T* const b = static_cast<const T*>(inputs.inputs[1]);
  const int64_t row = at.a + i * shape.a_row_stride;
  int64_t products = 0;  // since the last look
  for (int64_t j0 = 0; j0 < shape.n; j0 += kColumnsPerPass) {
    const int64_t columns = std::min(kColumnsPerPass, shape.n - j0);
    double sums[kColumnsPerPass] = {};
    for (int64_t p = 0; p < shape.k; ++p) {
      const double x = ToFloat(a[row + p * shape.a_column_stride]);
      const T* y = b + at.b + p * shape.b_row_stride + j0 * shape.b_column_stride;
      for (int64_t j = 0; j < columns; ++j) sums[j] += x * ToFloat(y[j * shape.b_column_stride]);
      products += columns;
      if (products < cpu::kElementsPerLook) continue;
      if (take.Stopped()) return;
      products = 0;
    }
    take(absl::MakeConstSpan(sums, columns));
  }
}

void Evaluate(const Problem& problem, const Operands& inputs, int64_t index, TakeValues take) {
  const Shape shape = DecodeShape(problem);
  const Slice slice = SliceOf(shape, index);
  const int64_t first = slice.first / shape.n;
  const int64_t end = first + slice.count / shape.n;
  DispatchDataType(problem.outputs[0].data_type, [&]<typename T>(T) {
    for (int64_t row = first; row < end; ++row) Row<T>(shape, inputs, row, take);
  });
}

}  // namespace

const Definition kDefinition = {.slices = Slices, .slice = SliceAt, .evaluate = Evaluate};

Implementation Float64Row() { return cpu::DefinitionRow(MatmulOp()); }

}  // namespace warpcall::matmul
