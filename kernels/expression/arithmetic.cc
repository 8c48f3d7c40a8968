#include "kernels/expression/arithmetic.h"

#include <algorithm>
#include <numbers>

#include "proto/common/check.h"

namespace warpcall::expression {
namespace {

constexpr double kUnit = 0x1p-24;
constexpr double kAnything = HUGE_VAL;
// Smaller results may be given as 0 by functions that are approximated.
constexpr double kLeastNormal = 0x1p-126;
// Half the distance between subnormal numbers.
constexpr double kHalfLeast = 0x1p-150;
// gelu and silu multiply x by something that may be given as 0 where it is smaller than this.
constexpr double kNothing = 1e-34;

// 0.5 (1 + tanh(a)) = 1 / (1 + exp(-2a)), which loses nothing where tanh(a) is near -1.
double Gelu(double x) {
  if (x == -HUGE_VAL) return -0.0;
  const double a = std::sqrt(2 * std::numbers::inv_pi) * (x + 0.044715 * x * x * x);
  return x / (1 + std::exp(-2 * a));
}

double GeluErf(double x) {
  return x == -HUGE_VAL ? -0.0 : 0.5 * x * std::erfc(-x / std::numbers::sqrt2);
}

double Silu(double x) { return x == -HUGE_VAL ? -0.0 : x / (1 + std::exp(-x)); }

// Relative to x, not to the result: see kernels/gelu/gelu_cases.cc, from which `kLeft` is, too.
double OwnErrorOfGelu(double size, const Bounded& x) {
  constexpr double kLeft = -6;
  if (x.value + x.error < kLeft) return size + kNothing;
  return 8 * kUnit * (std::fabs(x.value) + x.error) + kNothing;
}

// Returns the error that the step itself adds to a result of about `size`; `x` is its operand 0.
double OwnError(Operator op, double size, const Bounded& x) {
  switch (op) {
    case Operator::kAdd:
    case Operator::kSubtract:
    case Operator::kSqrt:
      return kUnit * size;
    case Operator::kMultiply:
      return kUnit * size + kHalfLeast;
    case Operator::kDivide:  // a product with the reciprocal, each rounded
      return 2 * kUnit * size + kHalfLeast;
    // Polynomials and what they are put together with, or the functions of CUDA's library: 4 units
    // in the last place are its pow's.
    case Operator::kExp:
    case Operator::kExp2:
    case Operator::kLog:
    case Operator::kRsqrt:
    case Operator::kTanh:
    case Operator::kErf:
    case Operator::kPow:
      return 8 * kUnit * size + kLeastNormal;
    case Operator::kSigmoid:
    case Operator::kSilu:
      return 8 * kUnit * size + kNothing;
    case Operator::kGelu:
    case Operator::kGeluErf:
      return OwnErrorOfGelu(size, x);
    case Operator::kInput:
    case Operator::kConstant:
    case Operator::kNegate:
    case Operator::kAbs:
    case Operator::kRelu:
    case Operator::kDropout:
    case Operator::kMin:
    case Operator::kMax:
    case Operator::kLess:
    case Operator::kLessEqual:
    case Operator::kGreater:
    case Operator::kGreaterEqual:
    case Operator::kEqual:
    case Operator::kSelect:
    case Operator::kRowSum:
    case Operator::kRowMean:
    case Operator::kRowMax:
    case Operator::kRowMin:
    case Operator::kRowInverseRms:
      return 0;
  }
  return kAnything;
}

// Returns the distance of `other` from `value`.
double Distance(double other, double value) {
  if (other == value || (std::isnan(other) && std::isnan(value))) return 0;
  const double distance = std::fabs(other - value);
  return std::isfinite(distance) ? distance : kAnything;
}

// The most that errors of the operands move the result. Operations are monotone in each operand, or
// move less inside the operands' ranges than at their ends, or than `kSteepest` times the error.
// Even powers turn at 0: where both ends of a range that holds 0 overflow, only 0 tells that the
// result may be finite.
double Moved(const Node& node, const Bounded* operands, double value) {
  constexpr double kSteepest = 1.13;  // gelu's slope, and silu's
  const Bounded& a = operands[0];
  const int count = OperandCount(node.op);
  if (a.error == 0 && (count < 2 || operands[1].error == 0)) return 0;
  const Operator op = node.op;
  const auto holds_zero = [](const Bounded& x) { return std::fabs(x.value) <= x.error; };
  if (op == Operator::kDivide && operands[1].error > 0 && holds_zero(operands[1])) return kAnything;
  if ((op == Operator::kRsqrt || op == Operator::kPow) && holds_zero(a) &&
      !(op == Operator::kPow && node.value > 0 && node.value == std::floor(node.value)))
    return kAnything;
  if (op == Operator::kGelu || op == Operator::kGeluErf || op == Operator::kSilu)
    return kSteepest * a.error;
  double moved =
      op == Operator::kPow && holds_zero(a) ? Distance(std::pow(0.0, node.value), value) : 0;
  for (const double da : {-a.error, a.error}) {
    double corner[kOperandsMax] = {a.value + da, 0, 0};
    if (count < 2) {
      moved = std::max(moved, Distance(InRange(Compute(node, corner)), value));
      continue;
    }
    for (const double db : {-operands[1].error, operands[1].error}) {
      corner[1] = operands[1].value + db;
      moved = std::max(moved, Distance(InRange(Compute(node, corner)), value));
    }
  }
  return moved;
}

Bounded Compare(const Node& node, const Bounded* operands) {
  const double values[] = {operands[0].value, operands[1].value};
  const double errors = operands[0].error + operands[1].error;
  const double value = Compute(node, values);
  // Infinite values have no error here, and NaN compares like nothing.
  const bool sure = errors == 0 || std::isnan(values[0]) || std::isnan(values[1]) ||
                    std::fabs(values[0] - values[1]) > errors;
  return {value, sure ? 0 : kAnything};
}

Bounded Select(const Bounded& condition, const Bounded& yes, const Bounded& no) {
  const Bounded& chosen = condition.value != 0 ? yes : no;
  if (condition.error == 0) return chosen;
  const double error = std::max(yes.error, no.error) + Distance(yes.value, no.value);
  return {chosen.value, error};
}

// The step's own error on top, with care at the end of the range. `raw` is the value before that.
Bounded WithOwn(const Node& node, const Bounded& moved, double raw, const Bounded& x) {
  const auto [value, error] = moved;
  if (std::isnan(value) || error == kAnything) return moved;
  if (std::isinf(value)) {
    const bool sure =
        std::isinf(raw) || std::fabs(raw) - OwnError(node.op, std::fabs(raw), x) >= kOverflow;
    return {value, sure ? 0 : kAnything};
  }
  const double whole = error + OwnError(node.op, std::fabs(value) + error, x);
  return {value, std::fabs(value) + whole >= kOverflow ? kAnything : whole};
}

}  // namespace

// In minimum and maximum NaN wins. Equal operands yield the second one: zeros may differ in their
// signs.
double Compute(const Node& node, const double* operands) {
  const double a = operands[0];
  switch (node.op) {
    case Operator::kConstant:
      return node.value;
    case Operator::kNegate:
      return -a;
    case Operator::kAbs:
      return std::fabs(a);
    case Operator::kExp:
      return std::exp(a);
    case Operator::kExp2:
      return std::exp2(a);
    case Operator::kLog:
      return std::log(a);
    case Operator::kSqrt:
      return std::sqrt(a);
    case Operator::kRsqrt:
      return 1 / std::sqrt(a);
    case Operator::kTanh:
      return std::tanh(a);
    case Operator::kErf:
      return std::erf(a);
    case Operator::kSigmoid:
      return 1 / (1 + std::exp(-a));
    case Operator::kRelu:  // 0 for -0; NaN stays
      return a <= 0 ? 0 : a;
    case Operator::kGelu:
      return Gelu(a);
    case Operator::kGeluErf:
      return GeluErf(a);
    case Operator::kSilu:
      return Silu(a);
    case Operator::kPow:
      return std::pow(a, node.value);
    case Operator::kAdd:
      return a + operands[1];
    case Operator::kSubtract:
      return a - operands[1];
    case Operator::kMultiply:
      return a * operands[1];
    case Operator::kDivide:
      return a / operands[1];
    case Operator::kMin:
      return a < operands[1] || std::isnan(a) ? a : operands[1];
    case Operator::kMax:
      return a > operands[1] || std::isnan(a) ? a : operands[1];
    case Operator::kLess:
      return a < operands[1];
    case Operator::kLessEqual:
      return a <= operands[1];
    case Operator::kGreater:
      return a > operands[1];
    case Operator::kGreaterEqual:
      return a >= operands[1];
    case Operator::kEqual:
      return a == operands[1];
    case Operator::kSelect:
      return a != 0 ? operands[1] : operands[2];
    case Operator::kInput:
    case Operator::kDropout:
    case Operator::kRowSum:
    case Operator::kRowMean:
    case Operator::kRowMax:
    case Operator::kRowMin:
    case Operator::kRowInverseRms:
      break;
  }
  return std::numeric_limits<double>::quiet_NaN();
}

Bounded Compute(const Node& node, const Bounded* operands) {
  if (node.op == Operator::kConstant) return {node.value, 0};
  double values[kOperandsMax] = {};
  const int count = OperandCount(node.op);
  bool anything = false;
  for (int i = 0; i < count; ++i) {
    values[i] = operands[i].value;
    anything |= operands[i].error == kAnything;
  }
  if (node.op == Operator::kSelect) return Select(operands[0], operands[1], operands[2]);
  const double raw = Compute(node, values);
  const double value = InRange(raw);
  if (anything) return {value, kAnything};
  if (IsComparison(node.op)) return Compare(node, operands);
  const Bounded moved = {value, Moved(node, operands, value)};
  return WithOwn(node, moved, raw, operands[0]);
}

double Drop(double value, bool keep, double scale) { return keep ? InRange(value * scale) : 0; }

Bounded Drop(const Bounded& value, bool keep, double scale) {
  if (!keep) return {0, 0};
  const Bounded operands[] = {value, {scale, 0}};
  return Compute({.op = Operator::kMultiply, .operands = {0, 1, -1}}, operands);
}

void Reduction::Take(const Bounded& value, bool bounded) {
  any_nan_ |= std::isnan(value.value);
  if (op_ == Operator::kRowSum || op_ == Operator::kRowMean) {
    sum_ += value.value;
  } else {
    greatest_ = std::max(greatest_, value.value);
    least_ = std::min(least_, value.value);
  }
  if (!bounded) return;
  errors_ += value.error;
  sizes_ += std::fabs(value.value);
  const double low = value.value - value.error;
  const double high = value.value + value.error;
  const bool takes_low = op_ == Operator::kRowMax ? low > low_ : low < low_;
  const bool takes_high = op_ == Operator::kRowMax ? high > high_ : high < high_;
  if (first_ || takes_low) low_ = low;
  if (first_ || takes_high) high_ = high;
  first_ = false;
}

double Reduction::Value(int64_t count) const {
  WARPCALL_DCHECK(IsReduction(op_) && count > 0, OperatorName(op_), count);
  switch (op_) {
    case Operator::kRowSum:
      return sum_;
    case Operator::kRowMean:
      return sum_ / static_cast<double>(count);
    case Operator::kRowMax:
      return any_nan_ ? std::numeric_limits<double>::quiet_NaN() : greatest_;
    default:
      return any_nan_ ? std::numeric_limits<double>::quiet_NaN() : least_;
  }
}

void Reduction::Get(int64_t count, double* result) const { *result = InRange(Value(count)); }

void Reduction::Get(int64_t count, Bounded* result) const {
  const double raw = Value(count);
  const double value = InRange(raw);
  *result = {value, kAnything};
  if (errors_ == kAnything) return;
  const bool sums = op_ == Operator::kRowSum || op_ == Operator::kRowMean;
  if (std::isnan(value) || std::isinf(raw)) {
    result->error = 0;
    return;
  }
  double error;
  if (sums) {
    const double divisor = op_ == Operator::kRowMean ? static_cast<double>(count) : 1;
    const double added = static_cast<double>(count) * 0x1p-53 * sizes_;
    error = (errors_ + added) / divisor + kUnit * std::fabs(raw) + kHalfLeast;
  } else {
    // Zeros of either sign may come out.
    error = std::max(Distance(high_, value), Distance(low_, value)) + kHalfLeast;
  }
  const bool sure = std::isinf(value) ? std::fabs(raw) - error >= kOverflow
                                      : std::fabs(value) + error < kOverflow;
  result->error = !sure ? kAnything : std::isinf(value) ? 0 : error;
}

}  // namespace warpcall::expression
