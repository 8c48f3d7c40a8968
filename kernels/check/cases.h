// The cases that an op's implementations are checked on, by the conformance tests and by a server
// on its own machine, and the error bounds they must keep. Each op's folder has one file of cases.
#pragma once

#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kernels/op.h"
#include "proto/common/check.h"

namespace warpcall {

enum class Fill : uint8_t {
  kNormal,   // N(0, 1), fresh from the run's seed
  kWide,     // finite values over the whole range of the type, both signs, subnormals included
  kSpecial,  // N(0, 1) with NaN, +-infinity, +-0, largest and smallest values strewn in
  kBroad,    // N(0, 20)
  // -20 with one 0 in each run of the last dimension: in run i at i when there are as many runs as
  // places, otherwise at both ends, beside powers of two, and elsewhere by the seed.
  kSpikes,
  // Every bit pattern of a 16-bit type, one after the other; of float32 in steps of 16381.
  kPatterns,
  // Runs of the last dimension whose elements are a value of their own, 0.1 to 10^4, or in two of
  // three runs as near to it as one, and as 15, units in the last place.
  kAlike,
  kSubnormal,  // subnormal numbers of the type, both signs
  kLarge,      // N(0, 1) times a power of two that makes usual numbers of products with those
};

struct Case {
  std::string name;
  std::vector<Dims> shapes;  // one per input
  std::vector<NamedAttribute> attributes;
  Fill fill = Fill::kNormal;
  std::vector<DataType> data_types = {};  // types the op takes with these attributes; empty: all
  std::vector<Fill> later_fills = {};     // one per input after the first; empty: `fill`

  // REQUIRES: the case has such an input.
  Fill FillOf(size_t input) const {
    WARPCALL_DCHECK(input < shapes.size(), input, shapes.size());
    return input == 0 || later_fills.empty() ? fill : later_fills[input - 1];
  }
  bool IsFor(DataType type) const {
    return data_types.empty() || absl::c_linear_search(data_types, type);
  }
};

// Largest error of an element before it is rounded to the output's type, in units of the element's
// value. Half a unit in the last place of that type is allowed on top.
struct ElementError {
  double arithmetic = 0;  // float32's, in any row; infinite: any result is right, also NaN
  // Upper bound of the sum of the terms that are or read a subnormal number. It is allowed to
  // implementations that flush those to 0.
  double subnormal_inputs = 0;
};

// Deviations from the op's bounds that an implementation is allowed, because its library or its
// instructions deviate.
struct Allowance {
  const char* row = "";
  const char* reason = "";                // a full sentence
  std::vector<DataType> data_types = {};  // empty: all that the row takes
  double arithmetic = 1;                  // factor on ElementError::arithmetic
  int roundings = 1;                      // times that the result is rounded to its type
  double zero_below = 0;                  // a smaller |value| may be given as 0
  bool flushes_subnormal_inputs = false;  // subnormal_inputs counts as well

  // Returns true if special values differ from the definition's or results are rounded more than
  // once. Registry never selects such an implementation for "auto".
  bool Deviates() const { return roundings > 1 || zero_below > 0 || flushes_subnormal_inputs; }
};

struct OpCases {
  std::vector<Case> cases;
  // Each element's bound, for slice `index` of the op's definition, whose exact values are `truth`.
  // The comment at each definition gives the bound's source.
  std::vector<ElementError> (*errors)(const Problem& problem, const Operands& inputs, int64_t index,
                                      absl::Span<const double> truth);
  // `errors` in a sentence, for readers who choose among implementations.
  const char* tolerance;
  std::vector<Allowance> allowances;
  // The cases a server runs at every start: few and small, but enough to show that a row works.
  std::vector<Case> quick = {};
  // Returns the input shapes of a typical problem, which rates are measured on; its largest input
  // has about `elements` elements, at least 1024. Attributes have their defaults.
  std::vector<Dims> (*sized)(int64_t elements) = nullptr;
};

// Returns the allowance of `row` for `data_type`; one without deviations if the op lists none.
Allowance AllowanceFor(const OpCases& cases, absl::string_view row, DataType data_type);

}  // namespace warpcall
