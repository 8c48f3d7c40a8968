#include "kernels/triton/expression.h"

#include <limits>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "kernels/common/saturate.h"
#include "proto/common/check.h"
#include "proto/common/status_macros.h"

namespace warpcall::triton {
namespace {

constexpr int64_t kMost = std::numeric_limits<int64_t>::max();

// Operations on counts saturate both ways; a saturated product keeps the true one's sign.
int64_t Multiply(int64_t a, int64_t b) {
  int64_t product = 0;
  if (!__builtin_mul_overflow(a, b, &product)) return product;
  return (a < 0) == (b < 0) ? kMost : -kMost;
}

int64_t Subtract(int64_t a, int64_t b) {
  int64_t difference = 0;
  if (!__builtin_sub_overflow(a, b, &difference)) return difference;
  return a < 0 ? -kMost : kMost;
}

int64_t Add(int64_t a, int64_t b) {
  int64_t sum = 0;
  if (!__builtin_add_overflow(a, b, &sum)) return sum;
  return a < 0 ? -kMost : kMost;
}

bool IsOfName(char c) { return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_'; }

}  // namespace

class ExpressionParser {
 public:
  ExpressionParser(absl::string_view text, absl::Span<const std::string> names)
      : text_(text), names_(names), rest_(text) {}

  absl::StatusOr<Expression> Parse() {
    RETURN_IF_ERROR(Sum(0));
    Skip();
    if (!rest_.empty()) return Wrong("an operator");
    return std::move(made_);
  }

 private:
  using Step = Expression::Step;

  absl::Status Wrong(absl::string_view expected) const {
    return absl::InvalidArgumentError(absl::StrCat("expression \"", text_, "\": expected ",
                                                   expected, " at character ",
                                                   text_.size() - rest_.size() + 1));
  }

  void Skip() { rest_ = absl::StripLeadingAsciiWhitespace(rest_); }

  bool Take(absl::string_view token) {
    Skip();
    return absl::ConsumePrefix(&rest_, token);
  }

  absl::Status Expect(absl::string_view token) {
    if (Take(token)) return absl::OkStatus();
    return Wrong(absl::StrCat("\"", token, "\""));
  }

  absl::Status Sum(int depth) {
    RETURN_IF_ERROR(Product(depth));
    for (;;) {
      const bool add = Take("+");
      if (!add && !Take("-")) return absl::OkStatus();
      RETURN_IF_ERROR(Product(depth));
      Append({.kind = add ? Step::Kind::kAdd : Step::Kind::kSubtract});
    }
  }

  absl::Status Product(int depth) {
    RETURN_IF_ERROR(Factor(depth));
    while (Take("*")) {
      RETURN_IF_ERROR(Factor(depth));
      Append({.kind = Step::Kind::kMultiply});
    }
    return absl::OkStatus();
  }

  absl::Status Factor(int depth) {
    if (depth > Expression::kDepthMax)
      return Wrong(
          absl::StrCat("at most ", Expression::kDepthMax, " parentheses within each other"));
    if (Take("(")) {
      RETURN_IF_ERROR(Sum(depth + 1));
      return Expect(")");
    }
    size_t length = 0;
    while (length < rest_.size() && IsOfName(rest_[length])) ++length;
    const absl::string_view word = rest_.substr(0, length);
    if (word == "ceil") return CeilDivision(depth);
    int64_t number = 0;
    if (absl::SimpleAtoi(word, &number)) {
      Append({.kind = Step::Kind::kNumber, .number = number});
    } else if (absl::c_linear_search(names_, word)) {
      Append({.kind = Step::Kind::kName, .name = std::string(word)});
    } else {
      return Wrong("a number or a known name");
    }
    rest_.remove_prefix(length);
    return absl::OkStatus();
  }

  absl::Status CeilDivision(int depth) {
    RETURN_IF_ERROR(Expect("ceil"));
    RETURN_IF_ERROR(Expect("("));
    RETURN_IF_ERROR(Sum(depth + 1));
    RETURN_IF_ERROR(Expect("/"));
    RETURN_IF_ERROR(Sum(depth + 1));
    Append({.kind = Step::Kind::kCeilDivide});
    return Expect(")");
  }

  void Append(Step step) { made_.steps_.push_back(std::move(step)); }

  const absl::string_view text_;
  const absl::Span<const std::string> names_;
  absl::string_view rest_;
  Expression made_;
};

absl::StatusOr<Expression> Expression::Parse(absl::string_view text,
                                             absl::Span<const std::string> names) {
  if (text.size() > kCharactersMax)
    return absl::InvalidArgumentError(absl::StrCat("an expression has ", text.size(),
                                                   " characters; the limit is ", kCharactersMax));
  return ExpressionParser(text, names).Parse();
}

int64_t Expression::Evaluate(absl::Span<const NamedInteger> values) const {
  std::vector<int64_t> stack;
  stack.reserve(steps_.size());
  for (const Step& step : steps_) {
    if (step.kind == Step::Kind::kNumber) {
      stack.push_back(step.number);
      continue;
    }
    if (step.kind == Step::Kind::kName) {
      const auto at = absl::c_find_if(
          values, [&](const NamedInteger& value) { return value.first == step.name; });
      WARPCALL_CHECK(at != values.end(), step.name);
      stack.push_back(at->second);
      continue;
    }
    WARPCALL_DCHECK(stack.size() >= 2, stack.size());
    const int64_t right = stack.back();
    stack.pop_back();
    int64_t& left = stack.back();
    switch (step.kind) {
      case Step::Kind::kAdd:
        left = Add(left, right);
        break;
      case Step::Kind::kSubtract:
        left = Subtract(left, right);
        break;
      case Step::Kind::kMultiply:
        left = Multiply(left, right);
        break;
      case Step::Kind::kCeilDivide:
        // Operands are counts: an empty dividend or divisor gives 0.
        left = right > 0 && left > 0 ? CeilDivide(left, right) : 0;
        break;
      case Step::Kind::kNumber:
      case Step::Kind::kName:
        break;
    }
  }
  WARPCALL_DCHECK(stack.size() == 1, stack.size());
  return stack.back();
}

}  // namespace warpcall::triton
