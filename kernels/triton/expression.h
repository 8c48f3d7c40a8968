// What a manifest says by formula, such as how many blocks a problem takes:
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

  // INVALID_ARGUMENT says where it is wrong, or which name is none of `names`.
  static absl::StatusOr<Expression> Parse(absl::string_view text,
                                          absl::Span<const std::string> names);

  // In integers that stop at the ends of their range instead of wrapping. REQUIRES: `values` holds
  // each of the names that it was parsed with.
  int64_t Evaluate(absl::Span<const NamedInteger> values) const;

 private:
  friend class ExpressionParser;

  // One after the other, on a stack.
  struct Step {
    enum class Kind : uint8_t { kNumber, kName, kAdd, kSubtract, kMultiply, kCeilDivide };
    Kind kind;
    int64_t number = 0;
    std::string name = {};
  };
  std::vector<Step> steps_;
};

}  // namespace warpcall::triton
