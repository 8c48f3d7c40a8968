// The unfused chain: widen, largest magnitude, bring near 1, mean, subtract, square, mean, scale,
// weigh and shift, each a pass of its own over float32 arrays in memory. For float32 and layernorm
// it moves 64 bytes an element, 10 floats read and 6 written, where the definition needs 8.
#include <algorithm>
#include <cmath>

#include "kernels/common/saturate.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/norm/norm.h"
#include "kernels/norm/norm_range.h"
#include "kernels/plan.h"
#include "proto/common/dispatch.h"

namespace warpcall::norm {
namespace {

constexpr int64_t kGrain = 16 * 1024;  // elements: some 10 us of the cheapest pass

struct Chain {
  cpu::Workers workers;
  View view;

  // out[i] = operation(row, column, i) for every element i.
  template <typename T, typename Operation>
  void ForEachElement(T* out, Operation operation) const {
    ForEachRow([&](int64_t row) {
      cpu::ForRanges(view.n, workers.stop(), [&](int64_t begin, int64_t end) {
        for (int64_t j = begin; j < end; ++j)
          out[row * view.n + j] = operation(row, j, row * view.n + j);
      });
    });
  }

  // statistic[row] = the mean of t in the row. In float64: where one element is far from all
  // others, their squares are alike, and so would be the roundings of float32's sums.
  void Mean(const float* t, float* statistic) const {
    ForEachRow([&](int64_t row) {
      double sum = 0;
      cpu::ForRanges(view.n, workers.stop(), [&](int64_t begin, int64_t end) {
        for (int64_t j = begin; j < end; ++j) sum += double{t[row * view.n + j]};
      });
      statistic[row] = static_cast<float>(sum / static_cast<double>(view.n));
    });
  }

  // scales[row]: what brings the row near 1. NaN is lost here and comes back with the sums.
  void FindScales(const float* t, Scale* scales) const {
    ForEachRow([&](int64_t row) {
      float largest = 0;
      cpu::ForRanges(view.n, workers.stop(), [&](int64_t begin, int64_t end) {
        for (int64_t j = begin; j < end; ++j)
          largest = std::max(largest, std::fabs(t[row * view.n + j]));
      });
      scales[row] = ScaleFor(largest, view.epsilon);
    });
  }

 private:
  template <typename Pass>
  void ForEachRow(Pass pass) const {
    workers.ParallelFor(view.rows, CeilDivide(kGrain, view.n), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) pass(row);
    });
  }
};

// Arrays that the chain keeps in its workspace.
struct Arrays {
  Scale* scales;
  float* statistic;
  float* t;
  float* squares;
};

template <typename T>
void Run(const Chain& chain, const Operands& operands, const Arrays& arrays) {
  Scale* const scales = arrays.scales;
  float* const statistic = arrays.statistic;
  float* const t = arrays.t;
  float* const squares = arrays.squares;
  const T* const x = static_cast<const T*>(operands.inputs[kX]);
  const T* const weight = static_cast<const T*>(operands.inputs[kWeight]);
  T* const y = static_cast<T*>(operands.outputs[0]);
  chain.ForEachElement(t, [=](int64_t, int64_t, int64_t i) { return ToFloat(x[i]); });
  chain.FindScales(t, scales);
  chain.ForEachElement(t,
                       [=](int64_t row, int64_t, int64_t i) { return t[i] * scales[row].factor; });
  if (chain.view.centered) {
    chain.Mean(t, statistic);
    chain.ForEachElement(t, [=](int64_t row, int64_t, int64_t i) { return t[i] - statistic[row]; });
  }
  chain.ForEachElement(squares, [=](int64_t, int64_t, int64_t i) { return t[i] * t[i]; });
  chain.Mean(squares, statistic);
  chain.ForEachElement(t, [=](int64_t row, int64_t, int64_t i) {
    return t[i] * (1 / std::sqrt(statistic[row] + scales[row].epsilon));
  });
  if (!chain.view.centered) {
    chain.ForEachElement(
        y, [=](int64_t, int64_t j, int64_t i) { return FromFloat<T>(t[i] * ToFloat(weight[j])); });
    return;
  }
  // The product alone may overflow where the sum does not.
  const T* const bias = static_cast<const T*>(operands.inputs[kBias]);
  chain.ForEachElement(y, [=](int64_t, int64_t j, int64_t i) {
    const double product = double{t[i]} * double{ToFloat(weight[j])};
    return FromFloat<T>(static_cast<float>(product + double{ToFloat(bias[j])}));
  });
}

absl::Status Launch(const Problem& problem, const Operands& operands,
                    const LaunchContext& context) {
  const int64_t elements = problem.inputs[kX].elements();
  if (elements == 0) return absl::OkStatus();
  const Chain chain{cpu::WorkersOf(context), ViewOf(problem)};
  Arrays arrays{};
  arrays.scales = static_cast<Scale*>(context.workspace);
  arrays.statistic = reinterpret_cast<float*>(arrays.scales + chain.view.rows);
  arrays.t = arrays.statistic + chain.view.rows;
  arrays.squares = arrays.t + elements;
  DispatchDataType(problem.inputs[kX].data_type,
                   [&]<typename T>(T) { Run<T>(chain, operands, arrays); });
  return absl::OkStatus();
}

size_t WorkspaceBytes(const Problem& problem, const DeviceProperties&) {
  const int64_t elements = problem.inputs[kX].elements();
  if (elements == 0) return 0;
  const int64_t of_rows = SaturatingMultiply(ViewOf(problem).rows, 3);
  return SaturatingBytes(SaturatingAdd(SaturatingMultiply(elements, 2), of_rows), sizeof(float));
}

}  // namespace

Implementation ChainOfLoopsRow() {
  return {.name = "chain_of_loops",
          .family = Family::kManual,
          .device_kind = DeviceKind::kCpu,
          .summary = "one elementary operation per pass over memory",
          .data_types = {DataType::kFloat32, DataType::kFloat16, DataType::kBFloat16},
          .supports = SupportsAll,
          .plan = PlanBy(Launch, WorkspaceBytes)};
}

}  // namespace warpcall::norm
