// What conformance runs each op on. One file of cases per op; the same table feeds every row of the
// registry.
#pragma once

#include <string>
#include <vector>

#include "kernels/op.h"

namespace warpcall::testing {

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
  const Op* op;
  std::vector<Case> cases;
  // Bound for one output of `problem`; the comment beside it says where it comes from. `magnitude`
  // is the largest finite |value| among the inputs.
  Tolerance (*tolerance)(const Problem& problem, double magnitude);
};

OpCases IdentityCases();
OpCases GeluCases();
OpCases SoftmaxCases();
OpCases MatmulCases();

}  // namespace warpcall::testing
