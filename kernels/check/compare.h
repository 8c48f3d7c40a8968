// Compares an implementation's output with the truth.
#pragma once

#include <cstdint>
#include <string>

#include "kernels/check/truth.h"

namespace warpcall {

struct Disagreement {
  int64_t wrong = 0;  // elements
  std::string text;   // one line for each of the first few: position, value, truth, bound
  // The largest error of a finite element that has a finite truth, in units of its bound.
  double worst = 0;
};

// NaN and infinity must stand exactly where the truth has them, infinity also where the truth
// rounds to it. A finite element is off by no more than its arithmetic and half a unit in the last
// place. Where the arithmetic has no error the sign of 0 counts too; where its error is infinite
// anything is right. `actual` holds a tensor of truth.spec.
Disagreement Compare(const Truth& truth, const void* actual, const Allowance& allowance = {});

// The inputs of a judgement other than the element's own values.
struct Tolerance {
  DataType data_type;
  const Allowance& allowance;
};

// The error of one element in units of its bound, as Compare sees it: 0 or infinite where a special
// value decides.
double OfBound(double actual, double truth, const ElementError& error, const Tolerance& tolerance);

// Half the distance between neighbours of `type` around `value`: what rounding to it may cost.
double HalfUnit(DataType type, double value);

}  // namespace warpcall
