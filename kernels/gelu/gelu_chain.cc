// The unfused chain: every elementary operation of the definition is a pass of its own over float32
// arrays in memory. Two arrays hold it: `h` is x and later x / 2, `t` everything else. For float32
// and tanh its ten passes move 92 bytes an element, 13 floats read and 10 written, where the
// definition needs 8.
#include <cmath>
#include <limits>
#include <numbers>

#include "kernels/common/saturate.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/gelu/gelu.h"
#include "kernels/plan.h"
#include "proto/common/dispatch.h"

namespace warpcall::gelu {
namespace {

constexpr int64_t kGrain = 16 * 1024;  // elements: some 10 us of the cheapest pass

struct Chain {
  cpu::Workers workers;
  int64_t count;

  // out[i] = operation(i) for every i, as one pass over memory.
  template <typename T, typename Operation>
  void Pass(T* out, Operation operation) const {
    workers.ParallelFor(count, kGrain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) out[i] = operation(i);
    });
  }
};

// t = tanh(sqrt(2 / pi) (h + 0.044715 h^3))
void TanhPasses(const Chain& chain, const float* h, float* t) {
  const float scale = std::sqrt(2 * std::numbers::inv_pi_v<float>);
  chain.Pass(t, [=](int64_t i) { return h[i] * h[i]; });
  chain.Pass(t, [=](int64_t i) { return t[i] * h[i]; });
  chain.Pass(t, [=](int64_t i) { return 0.044715f * t[i]; });
  chain.Pass(t, [=](int64_t i) { return h[i] + t[i]; });
  chain.Pass(t, [=](int64_t i) { return scale * t[i]; });
  chain.Pass(t, [=](int64_t i) { return std::tanh(t[i]); });
}

// t = erf(h / sqrt(2))
void ErfPasses(const Chain& chain, const float* h, float* t) {
  const float scale = 1 / std::numbers::sqrt2_v<float>;
  chain.Pass(t, [=](int64_t i) { return scale * h[i]; });
  chain.Pass(t, [=](int64_t i) { return std::erf(t[i]); });
}

absl::Status Launch(const Problem& problem, const Operands& operands,
                    const LaunchContext& context) {
  const Chain chain{cpu::WorkersOf(context), problem.inputs[0].elements()};
  float* const h = static_cast<float*>(context.workspace);
  float* const t = h + chain.count;
  DispatchDataType(problem.inputs[0].data_type, [&]<typename T>(T) {
    const T* const x = static_cast<const T*>(operands.inputs[0]);
    T* const y = static_cast<T*>(operands.outputs[0]);
    chain.Pass(h, [=](int64_t i) { return ToFloat(x[i]); });
    if (UsesTanh(problem)) {
      TanhPasses(chain, h, t);
    } else {
      ErfPasses(chain, h, t);
    }
    chain.Pass(t, [=](int64_t i) { return 1.0f + t[i]; });
    chain.Pass(h, [=](int64_t i) { return 0.5f * h[i]; });
    // -inf x 0 is where the product has a limit and IEEE arithmetic none.
    constexpr float kLowest = std::numeric_limits<float>::lowest();
    chain.Pass(y, [=](int64_t i) { return FromFloat<T>(h[i] < kLowest ? -0.0f : h[i] * t[i]); });
  });
  return absl::OkStatus();
}

size_t WorkspaceBytes(const Problem& problem, const DeviceProperties&) {
  return SaturatingBytes(problem.inputs[0].elements(), 2 * sizeof(float));
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

}  // namespace warpcall::gelu
