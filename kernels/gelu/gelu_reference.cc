// The truth: the definition in float64, rounded once.
#include <cmath>
#include <numbers>

#include "kernels/common/dispatch.h"
#include "kernels/common/round.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/gelu/gelu.h"

namespace warpcall::gelu {
namespace {

constexpr int64_t kGrain = 4096;  // elements, at some 20 ns each

// 0.5 (1 + tanh(a)) = 1 / (1 + exp(-2a)), which loses nothing where tanh(a) is near -1.
double Tanh(double x) {
  const double a = std::sqrt(2 * std::numbers::inv_pi) * (x + 0.044715 * x * x * x);
  return x / (1 + std::exp(-2 * a));
}

// 0.5 (1 + erf(z)) = 0.5 erfc(-z), for the same reason.
double None(double x) { return 0.5 * x * std::erfc(-x / std::numbers::sqrt2); }

absl::Status Launch(const Problem& problem, const Operands& operands,
                    const LaunchContext& context) {
  double (*const gelu)(double) = UsesTanh(problem) ? Tanh : None;
  DispatchDataType(problem.inputs[0].data_type, [&]<typename T>(T) {
    const T* const x = static_cast<const T*>(operands.inputs[0]);
    T* const y = static_cast<T*>(operands.outputs[0]);
    cpu::PoolOf(context).ParallelFor(
        problem.inputs[0].elements(), kGrain, [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) {
            const double value = ToFloat(x[i]);
            y[i] = FromDouble<T>(value == -INFINITY ? -0.0 : gelu(value));
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

}  // namespace warpcall::gelu
