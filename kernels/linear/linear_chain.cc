// The unfused chain: one output of the product at a time, the bias, the activation, each a pass of
// its own over float32 sums in memory.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "kernels/common/saturate.h"
#include "kernels/cpu/chunked_sum.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/linear/linear.h"
#include "kernels/plan.h"
#include "proto/common/dispatch.h"

namespace warpcall::linear {
namespace {

// A share of work that is worth waking a thread for: about 25 us of the product.
constexpr int64_t kTermsPerChunk = 1 << 14;

struct Chain {
  cpu::Workers workers;
  int64_t rows;
  int64_t k;
  int64_t n;

  // Sets out[i] = operation(i) for every output i; each operation adds up `terms` terms.
  template <typename T, typename Operation>
  void ForEachOutput(int64_t terms, T* out, Operation operation) const {
    const int64_t grain = std::max<int64_t>(1, kTermsPerChunk / std::max<int64_t>(1, terms));
    workers.ParallelFor(rows * n, grain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) out[i] = operation(i);
    });
  }

  template <typename T>
  void Multiply(const T* x, const T* weight, float* t) const {
    ForEachOutput(k, t, [&](int64_t i) {
      const T* const row = x + i / n * k;
      const T* const column = weight + i % n * k;
      return cpu::ChunkedSum(k, workers.stop(),
                             [&](int64_t p) { return ToFloat(row[p]) * ToFloat(column[p]); });
    });
  }
};

// In float32. 1 + tanh(a) as 2 / (1 + exp(-2a)) keeps the sum's digits where tanh(a) is near -1.
float Activate(matmul::Activation activation, float x) {
  constexpr float kLowest = std::numeric_limits<float>::lowest();
  switch (activation) {
    case matmul::Activation::kNone:
      return x;
    case matmul::Activation::kRelu:
      return x < 0 ? 0 : x;
    case matmul::Activation::kGelu: {
      constexpr float kFactor = 0.797884561f;  // sqrt(2 / pi)
      return x < kLowest ? -0.0f : x / (1 + std::exp(-2 * kFactor * (x + 0.044715f * x * x * x)));
    }
    case matmul::Activation::kGeluErf:
      return x < kLowest ? -0.0f : 0.5f * x * std::erfc(-x / std::numbers::sqrt2_v<float>);
  }
  return x;
}

absl::Status Launch(const Problem& problem, const Operands& operands,
                    const LaunchContext& context) {
  if (problem.outputs[0].elements() == 0) return absl::OkStatus();
  const Problem product = ProductOf(problem);
  const Dims& x = product.inputs[0].dims;
  const Chain chain{cpu::WorkersOf(context), x[0], x[1], product.outputs[0].dims[1]};
  float* const t = static_cast<float*>(context.workspace);
  const matmul::Activation activation = ActivationOf(problem);
  DispatchDataType(problem.outputs[0].data_type, [&]<typename T>(T) {
    const T* const bias = static_cast<const T*>(operands.inputs[kBias]);
    chain.Multiply(static_cast<const T*>(operands.inputs[kX]),
                   static_cast<const T*>(operands.inputs[kWeight]), t);
    chain.ForEachOutput(1, t, [&](int64_t i) { return t[i] + ToFloat(bias[i % chain.n]); });
    chain.ForEachOutput(1, static_cast<T*>(operands.outputs[0]),
                        [&](int64_t i) { return FromFloat<T>(Activate(activation, t[i])); });
  });
  return absl::OkStatus();
}

size_t WorkspaceBytes(const Problem& problem, const DeviceProperties&) {
  return SaturatingBytes(problem.outputs[0].elements(), sizeof(float));
}

}  // namespace

Implementation ChainOfLoopsRow() {
  return {.name = "chain_of_loops",
          .family = Family::kManual,
          .device_kind = DeviceKind::kCpu,
          .summary = "product without tiling, bias and activation, each a pass over memory",
          .data_types = {std::begin(kDataTypes), std::end(kDataTypes)},
          .supports = SupportsAll,
          .plan = PlanBy(Launch, WorkspaceBytes)};
}

}  // namespace warpcall::linear
