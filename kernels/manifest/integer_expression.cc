#include "kernels/manifest/integer_expression.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "proto/common/check.h"
#include "proto/common/status_macros.h"

namespace warpcall::manifest {
namespace {

bool IsOfWord(char c) { return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_'; }

int64_t FloorDivide(int64_t a, int64_t b) {
  return a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);
}

}  // namespace

class ExpressionParser {
 public:
  ExpressionParser(absl::string_view text, IntegerExpression::IsName is_name)
      : text_(text), is_name_(is_name), rest_(text), made_(text) {}

  absl::StatusOr<IntegerExpression> Parse(bool condition) {
    if (text_.size() > IntegerExpression::kCharactersMax)
      return absl::InvalidArgumentError(absl::StrCat("an expression has ", text_.size(),
                                                     " characters; the limit is ",
                                                     IntegerExpression::kCharactersMax));
    RETURN_IF_ERROR(Sum(0));
    if (condition) RETURN_IF_ERROR(Comparison());
    if (Skip(); !rest_.empty()) return Expected("an operator");
    return std::move(made_);
  }

 private:
  using Kind = IntegerExpression::Kind;
  struct Operator {
    absl::string_view text;
    Kind kind;
  };

  int column() const { return static_cast<int>(text_.size() - rest_.size()) + 1; }

  absl::Status Expected(absl::string_view what) const {
    return made_.Wrong(column(), absl::StrCat("expected ", what));
  }

  void Skip() { rest_ = absl::StripLeadingAsciiWhitespace(rest_); }

  bool Consume(absl::string_view token) {
    Skip();
    return absl::ConsumePrefix(&rest_, token);
  }

  absl::Status Require(absl::string_view token) {
    if (Consume(token)) return absl::OkStatus();
    return Expected(absl::StrCat("\"", token, "\""));
  }

  absl::string_view Word() {
    size_t length = 0;
    while (length < rest_.size() && IsOfWord(rest_[length])) ++length;
    const absl::string_view word = rest_.substr(0, length);
    rest_.remove_prefix(length);
    return word;
  }

  absl::Status Append(Kind kind, int column, int64_t number = 0, std::string name = {}) {
    if (made_.steps_.size() >= IntegerExpression::kOperationsMax)
      return made_.Wrong(column, absl::StrCat("the limit is ", IntegerExpression::kOperationsMax,
                                              " numbers, names and operations"));
    made_.steps_.push_back({kind, column, number, std::move(name)});
    return absl::OkStatus();
  }

  // Returns the next operator if it is one of `operators`, else null.
  const Operator* Next(absl::Span<const Operator> operators) {
    Skip();
    for (const Operator& each : operators)
      if (absl::StartsWith(rest_, each.text)) return &each;
    return nullptr;
  }

  absl::Status Comparison() {
    static constexpr Operator kComparisons[] = {
        {"==", Kind::kEqual},          {"!=", Kind::kNotEqual}, {"<=", Kind::kLessOrEqual},
        {">=", Kind::kGreaterOrEqual}, {"<", Kind::kLess},      {">", Kind::kGreater}};
    const Operator* const found = Next(kComparisons);
    if (found == nullptr) return Expected("a comparison");
    const int at = column();
    rest_.remove_prefix(found->text.size());
    RETURN_IF_ERROR(Sum(0));
    return Append(found->kind, at);
  }

  // operand { operator operand }
  absl::Status Chain(absl::Span<const Operator> operators,
                     absl::FunctionRef<absl::Status()> operand) {
    RETURN_IF_ERROR(operand());
    while (const Operator* const found = Next(operators)) {
      const int at = column();
      rest_.remove_prefix(found->text.size());
      RETURN_IF_ERROR(operand());
      RETURN_IF_ERROR(Append(found->kind, at));
    }
    return absl::OkStatus();
  }

  absl::Status Sum(int depth) {
    static constexpr Operator kSums[] = {{"+", Kind::kAdd}, {"-", Kind::kSubtract}};
    return Chain(kSums, [&] { return Product(depth); });
  }

  absl::Status Product(int depth) {
    static constexpr Operator kProducts[] = {
        {"*", Kind::kMultiply}, {"/", Kind::kDivide}, {"%", Kind::kModulo}};
    return Chain(kProducts, [&] { return Factor(depth); });
  }

  absl::Status Factor(int depth) {
    if (depth > IntegerExpression::kDepthMax)
      return Expected(
          absl::StrCat("at most ", IntegerExpression::kDepthMax, " parentheses within each other"));
    if (Consume("(")) {
      RETURN_IF_ERROR(Sum(depth + 1));
      return Require(")");
    }
    const int at = column();
    const absl::string_view from = rest_;
    const absl::string_view word = Word();
    if (word == "ceil") return Ceil(at, depth);
    if (word == "min") return Least(Kind::kMin, at, depth);
    if (word == "max") return Least(Kind::kMax, at, depth);
    if (word == "next_pow2") {
      RETURN_IF_ERROR(Argument(depth));
      RETURN_IF_ERROR(Append(Kind::kNextPow2, at));
      return Require(")");
    }
    int64_t number = 0;
    if (!word.empty() && absl::ascii_isdigit(static_cast<unsigned char>(word[0])) &&
        absl::SimpleAtoi(word, &number))
      return Append(Kind::kNumber, at, number);
    rest_ = from;
    return Name(at);
  }

  // word [ "." word [ "[" [ "-" ] number "]" ] ]
  absl::Status Name(int at) {
    const absl::string_view from = rest_;
    std::string name(Word());
    if (absl::ConsumePrefix(&rest_, ".")) {
      absl::StrAppend(&name, ".", Word());
      if (Consume("[")) {
        const bool from_end = Consume("-");
        Skip();
        absl::StrAppend(&name, "[", from_end ? "-" : "", Word(), "]");
        RETURN_IF_ERROR(Require("]"));
      }
    }
    if (!name.empty() && is_name_(name)) return Append(Kind::kName, at, 0, std::move(name));
    rest_ = from;
    return Expected("a number or a known name");
  }

  // The opening parenthesis and what follows it.
  absl::Status Argument(int depth) {
    RETURN_IF_ERROR(Require("("));
    return Sum(depth + 1);
  }

  absl::Status Ceil(int at, int depth) {
    RETURN_IF_ERROR(Argument(depth));
    if (made_.steps_.back().kind != Kind::kDivide)
      return made_.Wrong(at, "ceil takes a quotient, as ceil(a / b)");
    made_.steps_.back().kind = Kind::kCeilDivide;
    return Require(")");
  }

  absl::Status Least(Kind kind, int at, int depth) {
    RETURN_IF_ERROR(Argument(depth));
    while (Consume(",")) {
      RETURN_IF_ERROR(Sum(depth + 1));
      RETURN_IF_ERROR(Append(kind, at));
    }
    return Require(")");
  }

  const absl::string_view text_;
  const IntegerExpression::IsName is_name_;
  absl::string_view rest_;
  IntegerExpression made_;
};

absl::StatusOr<IntegerExpression> IntegerExpression::Parse(absl::string_view text, IsName is_name) {
  return ExpressionParser(text, is_name).Parse(false);
}

absl::StatusOr<IntegerExpression> IntegerExpression::ParseCondition(absl::string_view text,
                                                                    IsName is_name) {
  return ExpressionParser(text, is_name).Parse(true);
}

absl::Status IntegerExpression::Wrong(int column, absl::string_view what) const {
  return absl::InvalidArgumentError(absl::StrCat(
      "\"", absl::string_view(text_).substr(0, kCharactersMax), "\", column ", column, ": ", what));
}

absl::StatusOr<int64_t> IntegerExpression::Apply(const Step& step, int64_t left,
                                                 int64_t right) const {
  int64_t result = 0;
  const auto beyond = [&](const char* sign) {
    return Wrong(step.column, absl::StrCat(left, " ", sign, " ", right, " exceeds 64 bits"));
  };
  switch (step.kind) {
    case Kind::kAdd:
      if (__builtin_add_overflow(left, right, &result)) return beyond("+");
      return result;
    case Kind::kSubtract:
      if (__builtin_sub_overflow(left, right, &result)) return beyond("-");
      return result;
    case Kind::kMultiply:
      if (__builtin_mul_overflow(left, right, &result)) return beyond("*");
      return result;
    case Kind::kDivide:
    case Kind::kCeilDivide:
    case Kind::kModulo:
      if (right == 0) return Wrong(step.column, absl::StrCat(left, " is divided by 0"));
      if (right == -1)
        return step.kind == Kind::kModulo ? 0 : Apply({Kind::kSubtract, step.column}, 0, left);
      if (step.kind == Kind::kDivide) return FloorDivide(left, right);
      if (step.kind == Kind::kCeilDivide)
        return FloorDivide(left, right) + (left % right != 0 ? 1 : 0);
      return left - FloorDivide(left, right) * right;
    case Kind::kMin:
      return std::min(left, right);
    case Kind::kMax:
      return std::max(left, right);
    case Kind::kNextPow2:
      if (right > int64_t{1} << 62)
        return Wrong(step.column, absl::StrCat("next_pow2(", right, ") exceeds 64 bits"));
      for (result = 1; result < right;) result *= 2;
      return result;
    case Kind::kEqual:
      return left == right;
    case Kind::kNotEqual:
      return left != right;
    case Kind::kLessOrEqual:
      return left <= right;
    case Kind::kGreaterOrEqual:
      return left >= right;
    case Kind::kLess:
      return left < right;
    case Kind::kGreater:
      return left > right;
    case Kind::kNumber:
    case Kind::kName:
      break;
  }
  return result;
}

absl::StatusOr<int64_t> IntegerExpression::Evaluate(ValueOf value_of) const {
  absl::InlinedVector<int64_t, 16> stack;
  for (const Step& step : steps_) {
    if (step.kind == Kind::kNumber) {
      stack.push_back(step.number);
      continue;
    }
    if (step.kind == Kind::kName) {
      const absl::StatusOr<int64_t> value = value_of(step.name);
      if (!value.ok()) return Wrong(step.column, value.status().message());
      stack.push_back(*value);
      continue;
    }
    const bool is_unary = step.kind == Kind::kNextPow2;
    WARPCALL_CHECK(stack.size() >= (is_unary ? 1u : 2u), text_, stack.size());
    const int64_t right = stack.back();
    stack.pop_back();
    int64_t left = 0;
    if (!is_unary) {
      left = stack.back();
      stack.pop_back();
    }
    ASSIGN_OR_RETURN(const int64_t result, Apply(step, left, right));
    stack.push_back(result);
  }
  WARPCALL_CHECK(stack.size() == 1, text_, stack.size());
  return stack.back();
}

}  // namespace warpcall::manifest
