// Defines each operation in float64 and bounds float32's error: the truth that implementations are
// measured by. Steps have the range of float32: a result beyond that range is infinite.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "kernels/expression/graph.h"

namespace warpcall::expression {

// Element by element: what `node` makes of its operands' values. kInput, kDropout and reductions
// are no such operations. relu, min and max of zeros: see arithmetic.cc.
double Compute(const Node& node, const double* operands);

// From here on values round to infinity in float32.
inline constexpr double kOverflow = 0x1.FFFFFFp127;

inline double InRange(double value) {
  return std::fabs(value) >= kOverflow ? std::copysign(HUGE_VAL, value) : value;
}

// A value of the truth, and by how much a row in float32 may be off. The error is infinite where
// anything may come out, NaN too: at poles, at the end of float32's range, and behind a comparison
// of what is too close. A value that is not finite has error 0 or an infinite one.
struct Bounded {
  double value = 0;
  double error = 0;
};

// Computes one step on values with errors. The result's error is the step's own (OwnError) plus the
// effect of the operands' errors.
Bounded Compute(const Node& node, const Bounded* operands);

// Returns 0, or `value` times `scale` if `keep` is true. REQUIRES: a float32 holds `scale`.
double Drop(double value, bool keep, double scale);
Bounded Drop(const Bounded& value, bool keep, double scale);

// Takes a row's elements one after the other and reduces them. Sums are in float64.
class Reduction {
 public:
  explicit Reduction(Operator op) : op_(op) {}

  void Take(double value) { Take({value, 0}, false); }
  void Take(const Bounded& value) { Take(value, true); }

  // Writes the reduction of the `count` elements taken.
  void Get(int64_t count, double* result) const;
  void Get(int64_t count, Bounded* result) const;

 private:
  void Take(const Bounded& value, bool bounded);
  double Value(int64_t count) const;

  Operator op_;
  bool any_nan_ = false;
  double sum_ = 0;
  double greatest_ = -HUGE_VAL;
  double least_ = HUGE_VAL;
  // errors_ and sizes_ add up the elements' errors and absolute values, for sums. high_ and low_
  // bound the result of a maximum or minimum.
  double errors_ = 0;
  double sizes_ = 0;
  double high_ = 0;
  double low_ = 0;
  bool first_ = true;
};

}  // namespace warpcall::expression
