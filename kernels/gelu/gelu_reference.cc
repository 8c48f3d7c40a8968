// The truth: the definition in float64, rounded once.
#include <cmath>
#include <numbers>

#include "kernels/common/element_slices.h"
#include "kernels/cpu/definition_row.h"
#include "kernels/gelu/gelu.h"

namespace warpcall::gelu {
namespace {

// 0.5 (1 + tanh(a)) = 1 / (1 + exp(-2a)), which loses nothing where tanh(a) is near -1.
double Tanh(double x) {
  const double a = std::sqrt(2 * std::numbers::inv_pi) * (x + 0.044715 * x * x * x);
  return x / (1 + std::exp(-2 * a));
}

// 0.5 (1 + erf(z)) = 0.5 erfc(-z), for the same reason.
double None(double x) { return 0.5 * x * std::erfc(-x / std::numbers::sqrt2); }

double ExactlyTanh(double x) { return Exactly(x, true); }
double ExactlyNone(double x) { return Exactly(x, false); }

void Evaluate(const Problem& problem, const Operands& inputs, int64_t index, TakeValues take) {
  const auto evaluate =
      UsesTanh(problem) ? EvaluateElements<ExactlyTanh> : EvaluateElements<ExactlyNone>;
  evaluate(problem, inputs, index, take);
}

}  // namespace

double Exactly(double x, bool tanh) {
  if (x == -INFINITY) return -0.0;
  return tanh ? Tanh(x) : None(x);
}

const Definition kDefinition = {
    .slices = ElementSlices, .slice = ElementSlice, .evaluate = Evaluate};

Implementation Float64Row() { return cpu::DefinitionRow(GeluOp()); }

}  // namespace warpcall::gelu
