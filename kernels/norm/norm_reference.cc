// The truth: the definitions in float64, row by row, rounded once.
#include <algorithm>
#include <cmath>

#include "kernels/cpu/definition_row.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/norm/norm.h"
#include "proto/common/check.h"
#include "proto/common/dispatch.h"

namespace warpcall::norm {
namespace {

constexpr int64_t kPieceElements = 128;  // a KiB of values
static_assert(cpu::kElementsPerLook % kPieceElements == 0);

int64_t Slices(const Problem& problem) {
  return problem.outputs[0].elements() == 0 ? 0 : ViewOf(problem).rows;
}

Slice SliceAt(const Problem& problem, int64_t index) {
  WARPCALL_DCHECK(index >= 0 && index < Slices(problem), index, Slices(problem));
  const int64_t n = ViewOf(problem).n;
  return {.first = index * n, .stride = 1, .count = n};
}

// The mean of term(j) over a row; undefined if `take` was stopped.
template <typename Term>
double MeanOf(int64_t n, const TakeValues& take, const Term& term) {
  double sum = 0;
  for (int64_t begin = 0; begin < n; begin += cpu::kElementsPerLook) {
    if (begin > 0 && take.Stopped()) return 0;
    const int64_t end = std::min(begin + cpu::kElementsPerLook, n);
    for (int64_t j = begin; j < end; ++j) sum += term(j);
  }
  return sum / static_cast<double>(n);
}

// `bias` is null for rmsnorm.
template <typename T>
struct Row {
  const T* x;
  const T* weight;
  const T* bias;
};

template <typename T>
void EvaluateRow(const Row<T>& row, const View& view, TakeValues take) {
  const auto x = [&](int64_t j) { return double{ToFloat(row.x[j])}; };
  const double mean = view.centered ? MeanOf(view.n, take, x) : 0;
  const double square =
      MeanOf(view.n, take, [&](int64_t j) { return (x(j) - mean) * (x(j) - mean); });
  const double scale = 1 / std::sqrt(square + view.epsilon);
  double piece[kPieceElements];
  for (int64_t begin = 0; begin < view.n; begin += kPieceElements) {
    if (begin % cpu::kElementsPerLook == 0 && take.Stopped()) return;
    const int64_t count = std::min(kPieceElements, view.n - begin);
    for (int64_t i = 0; i < count; ++i) {
      const int64_t j = begin + i;
      piece[i] = (x(j) - mean) * scale * double{ToFloat(row.weight[j])};
      if (view.centered) piece[i] += double{ToFloat(row.bias[j])};
    }
    take(absl::MakeConstSpan(piece, static_cast<size_t>(count)));
  }
}

void Evaluate(const Problem& problem, const Operands& inputs, int64_t index, TakeValues take) {
  WARPCALL_DCHECK(index >= 0 && index < Slices(problem), index, Slices(problem));
  const View view = ViewOf(problem);
  DispatchDataType(problem.inputs[kX].data_type, [&]<typename T>(T) {
    const auto input = [&](int i) {
      return static_cast<const T*>(inputs.inputs[static_cast<size_t>(i)]);
    };
    const Row<T> row{.x = input(kX) + index * view.n,
                     .weight = input(kWeight),
                     .bias = view.centered ? input(kBias) : nullptr};
    EvaluateRow(row, view, take);
  });
}

}  // namespace

const Definition kDefinition = {.slices = Slices, .slice = SliceAt, .evaluate = Evaluate};

Implementation Float64Row(const Op& op) { return cpu::DefinitionRow(op); }

}  // namespace warpcall::norm
