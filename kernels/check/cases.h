// What the rows of an op are checked on, by conformance's tests and by the server on the machine at
// hand. One file of cases per op, in its folder.
#pragma once

#include <string>
#include <vector>

#include "kernels/op.h"

namespace warpcall {

enum class Fill : uint8_t {
  kNormal,   // N(0, 1), fresh from the run's seed
  kWide,     // finite values over the whole range of the type, both signs, subnormals included
  kSpecial,  // N(0, 1) with NaN, +-infinity, +-0, largest and smallest values strewn in
};

struct Case {
  std::string name;
  std::vector<Dims> shapes;  // one per input
  std::vector<NamedAttribute> attributes;
  Fill fill = Fill::kNormal;
};

// |actual - expected| <= absolute + relative x |expected|, both in units of the value.
struct Tolerance {
  double absolute;
  double relative;
};

struct OpCases {
  std::vector<Case> cases;
  // Bound for one output of `problem`; the comment beside it says where it comes from. `magnitude`
  // is the largest finite |value| among the inputs.
  Tolerance (*tolerance)(const Problem& problem, double magnitude);
};

}  // namespace warpcall
