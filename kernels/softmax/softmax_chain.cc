// The unfused chain: widen, maximum, subtract, exp, sum, divide, each a pass of its own over a
// float32 array in memory. For float32 it moves 44 bytes an element, 6 floats read and 5 written,
// where the definition needs 8.
#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/common/saturate.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/plan.h"
#include "kernels/softmax/softmax.h"
#include "proto/common/dispatch.h"

namespace warpcall::softmax {
namespace {

constexpr int64_t kGrain = 16 * 1024;  // elements: some 10 us of the cheapest pass

// Sums are in two levels: the error grows with kSumBlock + n / kSumBlock, not with n.
constexpr int64_t kSumBlock = 128;
static_assert(cpu::kElementsPerLook % kSumBlock == 0);

struct Chain {
  cpu::Workers workers;
  View view;

  // pass(row, offset of its element 0) for every row.
  template <typename Pass>
  void ForEachRow(Pass pass) const {
    workers.ParallelFor(view.rows(), CeilDivide(kGrain, view.n), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) pass(row, view.RowOffset(row));
    });
  }

  // out[i] = operation(row, i) for every element i.
  template <typename T, typename Operation>
  void ForEachElement(T* out, Operation operation) const {
    const int64_t stride = view.inner;
    ForEachRow([&](int64_t row, int64_t offset) {
      cpu::ForRanges(view.n, workers.stop(), [&](int64_t begin, int64_t end) {
        for (int64_t i = offset + begin * stride; i < offset + end * stride; i += stride)
          out[i] = operation(row, i);
      });
    });
  }

  // statistic[row] = the row's maximum; NaN may be lost here and comes back with the sum.
  void Maximum(const float* t, float* statistic) const {
    const int64_t stride = view.inner;
    ForEachRow([&](int64_t row, int64_t offset) {
      float max = -std::numeric_limits<float>::infinity();
      cpu::ForRanges(view.n, workers.stop(), [&](int64_t begin, int64_t end) {
        for (int64_t j = begin; j < end; ++j) max = std::max(max, t[offset + j * stride]);
      });
      statistic[row] = max;
    });
  }

  void Sum(const float* t, float* statistic) const {
    const int64_t stride = view.inner;
    ForEachRow([&](int64_t row, int64_t offset) {
      double sum = 0;  // float64: thousands of parts may be alike
      cpu::ForRanges(view.n, workers.stop(), [&](int64_t begin, int64_t end) {
        for (int64_t first = begin; first < end; first += kSumBlock) {
          float part = 0;
          const int64_t last = std::min(first + kSumBlock, end);
          for (int64_t j = first; j < last; ++j) part += t[offset + j * stride];
          sum += part;
        }
      });
      statistic[row] = static_cast<float>(sum);
    });
  }
};

absl::Status Launch(const Problem& problem, const Operands& operands,
                    const LaunchContext& context) {
  const int64_t elements = problem.inputs[0].elements();
  if (elements == 0) return absl::OkStatus();
  const Chain chain{cpu::WorkersOf(context), ViewOf(problem)};
  float* const t = static_cast<float*>(context.workspace);
  float* const statistic = t + elements;
  DispatchDataType(problem.inputs[0].data_type, [&]<typename T>(T) {
    const T* const x = static_cast<const T*>(operands.inputs[0]);
    T* const y = static_cast<T*>(operands.outputs[0]);
    chain.ForEachElement(t, [=](int64_t, int64_t i) { return ToFloat(x[i]); });
    chain.Maximum(t, statistic);
    chain.ForEachElement(t, [=](int64_t row, int64_t i) { return t[i] - statistic[row]; });
    chain.ForEachElement(t, [=](int64_t, int64_t i) { return std::exp(t[i]); });
    chain.Sum(t, statistic);
    chain.ForEachElement(
        y, [=](int64_t row, int64_t i) { return FromFloat<T>(t[i] / statistic[row]); });
  });
  return absl::OkStatus();
}

size_t WorkspaceBytes(const Problem& problem, const DeviceProperties&) {
  const int64_t elements = problem.inputs[0].elements();
  if (elements == 0) return 0;
  return SaturatingBytes(SaturatingAdd(elements, ViewOf(problem).rows()), sizeof(float));
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

}  // namespace warpcall::softmax
