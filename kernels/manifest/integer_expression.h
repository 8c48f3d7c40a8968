// Integer expressions over sizes, as the manifest of a kernel has them: grids, shared memory,
// scratch, and conditions on shapes.
//   condition = sum ( "==" | "!=" | "<=" | ">=" | "<" | ">" ) sum
//   sum       = product { ( "+" | "-" ) product }
//   product   = factor { ( "*" | "/" | "%" ) factor }
//   factor    = number | name | "(" sum ")" | "ceil" "(" sum ")" | "next_pow2" "(" sum ")"
//             | ( "min" | "max" ) "(" sum { "," sum } ")"
//   name      = word [ "." word [ "[" [ "-" ] number "]" ] ]
// "/" rounds down, and "%" leaves what "/" left: it has the divisor's sign. "ceil" takes a quotient
// and rounds it up.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace warpcall::manifest {

class IntegerExpression {
 public:
  static constexpr int kCharactersMax = 1024;
  static constexpr int kOperationsMax = 256;
  static constexpr int kDepthMax = 16;

  // Says of a name, written without spaces, if expressions may use it.
  using IsName = absl::FunctionRef<bool(absl::string_view name)>;
  // The value of a name, or why it has none here.
  using ValueOf = absl::FunctionRef<absl::StatusOr<int64_t>(absl::string_view name)>;

  // INVALID_ARGUMENT gives the text, the column and what was expected there, or the limit.
  static absl::StatusOr<IntegerExpression> Parse(absl::string_view text, IsName is_name);
  // As above, for a condition.
  static absl::StatusOr<IntegerExpression> ParseCondition(absl::string_view text, IsName is_name);

  // The value; 1 or 0 for a condition. INVALID_ARGUMENT gives the text, the column and the numbers
  // where a divisor is 0 or a result exceeds 64 bits, and errors of `value_of`.
  absl::StatusOr<int64_t> Evaluate(ValueOf value_of) const;

  const std::string& text() const { return text_; }

 private:
  friend class ExpressionParser;

  enum class Kind : uint8_t {
    kNumber,
    kName,
    kAdd,
    kSubtract,
    kMultiply,
    kDivide,
    kCeilDivide,
    kModulo,
    kMin,
    kMax,
    kNextPow2,
    kEqual,
    kNotEqual,
    kLessOrEqual,
    kGreaterOrEqual,
    kLess,
    kGreater,
  };
  // A step of the evaluation, which runs in order on a stack.
  struct Step {
    Kind kind;
    int column = 0;  // from 1
    int64_t number = 0;
    std::string name = {};
  };

  explicit IntegerExpression(absl::string_view text) : text_(text) {}
  absl::Status Wrong(int column, absl::string_view what) const;
  // `left` and `right` are the operands; for one of one operand, `left` is 0.
  absl::StatusOr<int64_t> Apply(const Step& step, int64_t left, int64_t right) const;

  std::string text_;
  std::vector<Step> steps_;
};

}  // namespace warpcall::manifest
