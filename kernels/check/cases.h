// What the rows of an op are checked on, by conformance's tests and by the server on the machine at
// hand, and how far from the truth they may be. One file of cases per op, in its folder.
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
  std::vector<DataType> data_types = {};  // that the op takes with these attributes; empty: all
  std::vector<Fill> later_fills = {};     // of the inputs after the first; empty: `fill`

  // REQUIRES: the case has such an input.
  Fill FillOf(size_t input) const {
    WARPCALL_DCHECK(input < shapes.size(), input, shapes.size());
    return input == 0 || later_fills.empty() ? fill : later_fills[input - 1];
  }
  bool IsFor(DataType type) const {
    return data_types.empty() || absl::c_linear_search(data_types, type);
  }
};

// By how much an element may be off before it is rounded to the type of the output, in units of its
// value. Half a unit in the last place of that type comes on top.
struct ElementError {
  double arithmetic = 0;  // of float32, in any row; infinite: anything is right, NaN too
  // What terms that are subnormal, or have a subnormal input, contribute at most: for rows that
  // take those as 0.
  double subnormal_inputs = 0;
};

// What a row may do beyond its op's bounds, because the library or the instruction that it stands
// on does so.
struct Allowance {
  const char* row = "";
  const char* reason = "";                // a full sentence
  std::vector<DataType> data_types = {};  // empty: all that the row takes
  double arithmetic = 1;                  // counts so many times
  int roundings = 1;                      // of the result to its type
  double zero_below = 0;                  // a smaller |value| may be given as 0
  bool flushes_subnormal_inputs = false;  // and such terms

  // Whether the row gives other special values than the definition, or rounds results more than
  // once: Registry lets "auto" choose no such row.
  bool Deviates() const { return roundings > 1 || zero_below > 0 || flushes_subnormal_inputs; }
};

struct OpCases {
  std::vector<Case> cases;
  // Each element's bound, for slice `index` of the op's definition, whose exact values are `truth`.
  // The comment beside it says where it comes from.
  std::vector<ElementError> (*errors)(const Problem& problem, const Operands& inputs, int64_t index,
                                      absl::Span<const double> truth);
  // The same in a sentence, for a reader who chooses among rows.
  const char* tolerance;
  std::vector<Allowance> allowances;
  // What a server tries its rows on at every start: as few and small ones as tell that they work.
  std::vector<Case> quick = {};
  // Shapes of the inputs of a usual problem whose largest input has some `elements`, at least 1024:
  // what rates are measured on. Attributes have their defaults.
  std::vector<Dims> (*sized)(int64_t elements) = nullptr;
};

// What `row` is allowed in `data_type`: nothing beyond the bounds when the op does not list it.
Allowance AllowanceFor(const OpCases& cases, absl::string_view row, DataType data_type);

}  // namespace warpcall
