// Integer formulas in a manifest, such as the number of blocks that a problem takes:
//   sum     = product { ("+" | "-") product }
//   product = factor { "*" factor }
//   factor  = number | name | "(" sum ")" | "ceil" "(" sum "/" sum ")"
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace warpcall::triton {

using NamedInteger = std::pair<absl::string_view, int64_t>;

class Expression {
 public:
  static constexpr int kCharactersMax = 256;
  static constexpr int kDepthMax = 16;

  // INVALID_ARGUMENT gives the position of the error, or the name that is not in `names`.
  static absl::StatusOr<Expression> Parse(absl::string_view text,
                                          absl::Span<const std::string> names);

  // Evaluates in integers that saturate instead of wrapping. REQUIRES: `values` holds every name
  // that the expression was parsed with.
  int64_t Evaluate(absl::Span<const NamedInteger> values) const;

 private:
  friend class ExpressionParser;

  // A step of the evaluation, which runs in order on a stack.
  struct Step {
    enum class Kind : uint8_t { kNumber, kName, kAdd, kSubtract, kMultiply, kCeilDivide };
    Kind kind;
    int64_t number = 0;
    std::string name = {};
  };
  std::vector<Step> steps_;
};

}  // namespace warpcall::triton
