// What each operation means, in float64, and how far float32 may be off: the truth that rows are
// measured by. Steps have the range of float32: a result beyond it is infinite.
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

// The same for values with errors. The error has the step's own (OwnError) and what those of the
// operands do to the result.
Bounded Compute(const Node& node, const Bounded* operands);

// Of a value that is given as 0 or multiplied by `scale`, which a float32 holds.
double Drop(double value, bool keep, double scale);
Bounded Drop(const Bounded& value, bool keep, double scale);

// Takes a row's elements one after the other and reduces them. Sums are in float64.
class Reduction {
 public:
  explicit Reduction(Operator op) : op_(op) {}

  void Take(double value) { Take({value, 0}, false); }
  void Take(const Bounded& value) { Take(value, true); }

  // Of so many elements.
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
  // Of sums, the elements' errors and sizes; of maximum and minimum, what it may be at most and
  // least.
  double errors_ = 0;
  double sizes_ = 0;
  double high_ = 0;
  double low_ = 0;
  bool first_ = true;
};

}  // namespace warpcall::expression
