// The truth: the definition in float64, row by row, rounded once.
#include <algorithm>
#include <cmath>

#include "kernels/cpu/definition_row.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/softmax/softmax.h"
#include "proto/common/check.h"
#include "proto/common/dispatch.h"

namespace warpcall::softmax {
namespace {

constexpr int64_t kPieceElements = 128;  // a KiB of values
static_assert(cpu::kElementsPerLook % kPieceElements == 0);

bool IsTimeToLook(int64_t element) { return element > 0 && element % cpu::kElementsPerLook == 0; }

int64_t Slices(const Problem& problem) {
  return problem.inputs[0].elements() == 0 ? 0 : ViewOf(problem).rows();
}

Slice SliceAt(const Problem& problem, int64_t index) {
  WARPCALL_DCHECK(index >= 0 && index < Slices(problem), index, Slices(problem));
  const View view = ViewOf(problem);
  return {.first = view.RowOffset(index), .stride = view.inner, .count = view.n};
}

// x points at the row's element 0, the next is `stride` on. NaN in x may be lost in the maximum,
// never in the sum; infinity as the maximum gives infinity - infinity, NaN.
template <typename T>
void Row(const T* x, int64_t n, int64_t stride, TakeValues take) {
  double max = -INFINITY;
  for (int64_t j = 0; j < n; ++j) {
    if (IsTimeToLook(j) && take.Stopped()) return;
    max = std::max<double>(max, ToFloat(x[j * stride]));
  }
  double sum = 0;
  for (int64_t j = 0; j < n; ++j) {
    if (IsTimeToLook(j) && take.Stopped()) return;
    sum += std::exp(ToFloat(x[j * stride]) - max);
  }
  double piece[kPieceElements];
  for (int64_t begin = 0; begin < n; begin += kPieceElements) {
    if (IsTimeToLook(begin) && take.Stopped()) return;
    const int64_t count = std::min(kPieceElements, n - begin);
    for (int64_t j = 0; j < count; ++j)
      piece[j] = std::exp(ToFloat(x[(begin + j) * stride]) - max) / sum;
    take(absl::MakeConstSpan(piece, count));
  }
}

void Evaluate(const Problem& problem, const Operands& inputs, int64_t index, TakeValues take) {
  const Slice row = SliceAt(problem, index);
  DispatchDataType(problem.inputs[0].data_type, [&]<typename T>(T) {
    Row(static_cast<const T*>(inputs.inputs[0]) + row.first, row.count, row.stride, take);
  });
}

}  // namespace

const Definition kDefinition = {.slices = Slices, .slice = SliceAt, .evaluate = Evaluate};

Implementation Float64Row() { return cpu::DefinitionRow(SoftmaxOp()); }

}  // namespace warpcall::softmax
