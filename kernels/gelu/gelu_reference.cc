// The truth: the definition in float64, rounded once.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "kernels/common/element_slices.h"
#include "kernels/cpu/definition_row.h"
#include "kernels/gelu/gelu.h"
#include "kernels/plan.h"
#include "proto/common/dispatch.h"

namespace warpcall::gelu {
namespace {

constexpr int64_t kPieceElements = 128;  // a KiB of values

// 0.5 (1 + tanh(a)) = 1 / (1 + exp(-2a)), which loses nothing where tanh(a) is near -1.
double Tanh(double x) {
  const double a = std::sqrt(2 * std::numbers::inv_pi) * (x + 0.044715 * x * x * x);
  return x / (1 + std::exp(-2 * a));
}

// 0.5 (1 + erf(z)) = 0.5 erfc(-z), for the same reason.
double None(double x) { return 0.5 * x * std::erfc(-x / std::numbers::sqrt2); }

void Evaluate(const Problem& problem, const Operands& inputs, int64_t index, TakeValues take) {
  const bool tanh = UsesTanh(problem);
  const Slice slice = ElementSlice(problem, index);
  DispatchDataType(problem.inputs[0].data_type, [&]<typename T>(T) {
    const T* const x = static_cast<const T*>(inputs.inputs[0]) + slice.first;
    double piece[kPieceElements];
    for (int64_t begin = 0; begin < slice.count; begin += kPieceElements) {
      const int64_t count = std::min(kPieceElements, slice.count - begin);
      for (int64_t i = 0; i < count; ++i) piece[i] = Exactly(ToFloat(x[begin + i]), tanh);
      take(absl::MakeConstSpan(piece, count));
    }
  });
}

absl::Status Launch(const Problem& problem, const Operands& operands,
                    const LaunchContext& context) {
  return cpu::LaunchDefinition(GeluOp(), problem, operands, context);
}

}  // namespace

double Exactly(double x, bool tanh) {
  if (x == -INFINITY) return -0.0;
  return tanh ? Tanh(x) : None(x);
}

const Definition kDefinition = {
    .slices = ElementSlices, .slice = ElementSlice, .evaluate = Evaluate};

Implementation Float64Row() {
  return {.name = "float64",
          .family = Family::kReference,
          .device_kind = DeviceKind::kCpu,
          .summary = "the definition in float64",
          .data_types = {DataType::kFloat32, DataType::kFloat16, DataType::kBFloat16},
          .supports = SupportsAll,
          .plan = PlanBy(Launch)};
}

}  // namespace warpcall::gelu
