// Whether what a row computed agrees with the truth.
#pragma once

#include <cstdint>
#include <string>

#include "kernels/check/cases.h"

namespace warpcall {

struct Disagreement {
  int64_t wrong = 0;  // elements
  std::string text;   // of the first few, a line each: position, value, expected value and bound
};

// NaN and infinity must stand exactly where `expected` has them; finite values obey the tolerance.
// Both hold a tensor of `spec`.
Disagreement Compare(const TensorSpec& spec, const void* actual, const void* expected,
                     Tolerance tolerance);

// The largest finite |value| of a tensor; 0 when there is none.
double MagnitudeOf(const TensorSpec& spec, const void* data);

}  // namespace warpcall
