#include "kernels/expression/parser.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "proto/common/status_macros.h"

namespace warpcall::expression {
namespace {

constexpr size_t kShownMax = 24;  // characters of the text in a message

std::string Shown(absl::string_view text) {
  return absl::StrCat("'", absl::CHexEscape(text.substr(0, kShownMax)),
                      text.size() > kShownMax ? "...'" : "'");
}

struct Function {
  absl::string_view name;
  size_t arguments;
  Operator op;  // for this number of arguments
};

constexpr Function kFunctions[] = {
    {"exp", 1, Operator::kExp},      {"exp2", 1, Operator::kExp2},
    {"log", 1, Operator::kLog},      {"sqrt", 1, Operator::kSqrt},
    {"rsqrt", 1, Operator::kRsqrt},  {"tanh", 1, Operator::kTanh},
    {"erf", 1, Operator::kErf},      {"sigmoid", 1, Operator::kSigmoid},
    {"relu", 1, Operator::kRelu},    {"abs", 1, Operator::kAbs},
    {"gelu", 1, Operator::kGelu},    {"gelu_erf", 1, Operator::kGeluErf},
    {"silu", 1, Operator::kSilu},    {"sum", 1, Operator::kRowSum},
    {"mean", 1, Operator::kRowMean}, {"max", 1, Operator::kRowMax},
    {"min", 1, Operator::kRowMin},   {"max", 2, Operator::kMax},
    {"min", 2, Operator::kMin},
};

constexpr char kAllFunctions[] =
    "exp, exp2, log, sqrt, rsqrt, tanh, erf, sigmoid, relu, abs, min, max, pow, where, gelu, "
    "gelu_erf, silu, softmax, sum, mean, var, dropout";

constexpr absl::string_view kOtherFunctions[] = {"pow", "where", "softmax", "var", "dropout"};

bool IsFunction(absl::string_view name) {
  return std::any_of(std::begin(kFunctions), std::end(kFunctions),
                     [&](const Function& function) { return function.name == name; }) ||
         std::find(std::begin(kOtherFunctions), std::end(kOtherFunctions), name) !=
             std::end(kOtherFunctions);
}

struct Token {
  enum class Kind : uint8_t { kEnd, kNumber, kName, kSign };

  Kind kind = Kind::kEnd;
  absl::string_view text;
  size_t column = 1;  // where it begins, from 1

  bool Is(absl::string_view sign) const { return kind == Kind::kSign && text == sign; }
};

absl::Status ErrorAt(size_t column, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("expression, column ", column, ": ", what));
}

class Lexer {
 public:
  explicit Lexer(absl::string_view text) : text_(text) {}

  absl::StatusOr<Token> Next() {
    while (at_ < text_.size() && absl::ascii_isspace(static_cast<unsigned char>(text_[at_]))) ++at_;
    Token token = {.kind = Token::Kind::kEnd, .text = {}, .column = at_ + 1};
    if (at_ == text_.size()) return token;
    size_t length = 1;
    if (IsDigit(at_) || (text_[at_] == '.' && IsDigit(at_ + 1))) {
      token.kind = Token::Kind::kNumber;
      length = NumberLength();
    } else if (IsLetter(at_)) {
      token.kind = Token::Kind::kName;
      while (IsLetter(at_ + length) || IsDigit(at_ + length)) ++length;
    } else {
      token.kind = Token::Kind::kSign;
      length = SignLength();
      if (length == 0)
        return ErrorAt(token.column,
                       absl::StrCat("unexpected character ", Shown(text_.substr(at_, 1))));
    }
    token.text = text_.substr(at_, length);
    at_ += length;
    return token;
  }

 private:
  bool IsDigit(size_t at) const {
    return at < text_.size() && absl::ascii_isdigit(static_cast<unsigned char>(text_[at]));
  }
  bool IsLetter(size_t at) const {
    return at < text_.size() &&
           (absl::ascii_isalpha(static_cast<unsigned char>(text_[at])) || text_[at] == '_');
  }
  size_t NumberLength() const {
    size_t end = at_;
    while (IsDigit(end)) ++end;
    if (end < text_.size() && text_[end] == '.') ++end;
    while (IsDigit(end)) ++end;
    if (end < text_.size() && (text_[end] == 'e' || text_[end] == 'E')) {
      size_t digits = end + 1;
      if (digits < text_.size() && (text_[digits] == '+' || text_[digits] == '-')) ++digits;
      if (IsDigit(digits)) end = digits;
      while (IsDigit(end)) ++end;
    }
    return end - at_;
  }
  size_t SignLength() const {
    const absl::string_view two = text_.substr(at_, 2);
    if (two == "<=" || two == ">=" || two == "==") return 2;
    return absl::string_view("+-*/(),<>").find(text_[at_]) == absl::string_view::npos ? 0 : 1;
  }

  const absl::string_view text_;
  size_t at_ = 0;
};

// A node, and where its text begins.
struct Value {
  int node = -1;
  size_t column = 1;
};

class Parser {
 public:
  explicit Parser(absl::string_view text) : lexer_(text) {}

  absl::StatusOr<Graph> Run() {
    RETURN_IF_ERROR(Advance());
    ASSIGN_OR_RETURN(const Value result, Comparison());
    if (token_.kind != Token::Kind::kEnd)
      return ErrorAt(token_.column, absl::StrCat("unexpected ", Shown(token_.text)));
    RETURN_IF_ERROR(CheckNumber(result));
    for (int i = 0, named = 0; i < kInputsMax; ++i) {
      if (named_at_[i] == 0) continue;
      if (named++ < i)
        return ErrorAt(named_at_[i], absl::StrCat("x", i, " is named, but not x", named - 1,
                                                  "; inputs are x0, x1 and so on"));
      inputs_ = i + 1;
    }
    if (inputs_ == 0) return ErrorAt(1, "it names no input; there must be 1 to 8, x0 to x7");
    return std::move(builder_).Finish(result.node, inputs_, operations_);
  }

 private:
  // Counts one level of nesting while it lives.
  class Level {
   public:
    explicit Level(int* depth) : depth_(depth) { ++*depth_; }
    ~Level() { --*depth_; }

   private:
    int* const depth_;
  };

  absl::Status Advance() {
    ASSIGN_OR_RETURN(token_, lexer_.Next());
    return absl::OkStatus();
  }

  absl::Status Expect(absl::string_view sign) {
    if (token_.Is(sign)) return Advance();
    return ErrorAt(token_.column, absl::StrCat("expected '", sign, "', got ", TokenText()));
  }

  std::string TokenText() const {
    return token_.kind == Token::Kind::kEnd ? "the end" : Shown(token_.text);
  }

  absl::Status CountOperation(size_t column) {
    if (++operations_ <= kOperationsMax) return absl::OkStatus();
    return ErrorAt(column, absl::StrCat("this is operation ", operations_, "; at most ",
                                        kOperationsMax, " are allowed"));
  }

  absl::Status CheckDepth(size_t column) const {
    if (depth_ <= kDepthMax) return absl::OkStatus();
    return ErrorAt(column, absl::StrCat("nested ", depth_, " deep; at most ", kDepthMax,
                                        " levels of parentheses, calls and unary minus are "
                                        "allowed"));
  }

  absl::Status CheckNumber(const Value& value) const {
    if (!builder_.IsCondition(value.node)) return absl::OkStatus();
    return ErrorAt(value.column, "a comparison stands only as the first argument of where()");
  }

  absl::StatusOr<Value> Apply(Operator op, size_t column, const Value& a, const Value& b) {
    RETURN_IF_ERROR(CountOperation(column));
    RETURN_IF_ERROR(CheckNumber(a));
    RETURN_IF_ERROR(CheckNumber(b));
    return Value{builder_.Apply(op, a.node, b.node), a.column};
  }

  absl::StatusOr<Value> Comparison() {
    ASSIGN_OR_RETURN(const Value a, Sum());
    const Operator op = token_.Is("<")    ? Operator::kLess
                        : token_.Is("<=") ? Operator::kLessEqual
                        : token_.Is(">")  ? Operator::kGreater
                        : token_.Is(">=") ? Operator::kGreaterEqual
                        : token_.Is("==") ? Operator::kEqual
                                          : Operator::kInput;
    if (op == Operator::kInput) return a;
    const size_t column = token_.column;
    RETURN_IF_ERROR(Advance());
    ASSIGN_OR_RETURN(const Value b, Sum());
    return Apply(op, column, a, b);
  }

  absl::StatusOr<Value> Sum() {
    ASSIGN_OR_RETURN(Value value, Product());
    while (token_.Is("+") || token_.Is("-")) {
      const Operator op = token_.Is("+") ? Operator::kAdd : Operator::kSubtract;
      const size_t column = token_.column;
      RETURN_IF_ERROR(Advance());
      ASSIGN_OR_RETURN(const Value right, Product());
      ASSIGN_OR_RETURN(value, Apply(op, column, value, right));
    }
    return value;
  }

  absl::StatusOr<Value> Product() {
    ASSIGN_OR_RETURN(Value value, Factor());
    while (token_.Is("*") || token_.Is("/")) {
      const Operator op = token_.Is("*") ? Operator::kMultiply : Operator::kDivide;
      const size_t column = token_.column;
      RETURN_IF_ERROR(Advance());
      ASSIGN_OR_RETURN(const Value right, Factor());
      ASSIGN_OR_RETURN(value, Apply(op, column, value, right));
    }
    return value;
  }

  absl::StatusOr<Value> Factor() {
    const Token first = token_;
    if (first.kind == Token::Kind::kNumber) return Number();
    if (first.kind == Token::Kind::kName) {
      RETURN_IF_ERROR(Advance());
      return token_.Is("(") ? Call(first) : Input(first);
    }
    const Level level(&depth_);
    if (first.Is("-")) {
      RETURN_IF_ERROR(CheckDepth(first.column));
      RETURN_IF_ERROR(CountOperation(first.column));
      RETURN_IF_ERROR(Advance());
      ASSIGN_OR_RETURN(const Value value, Factor());
      RETURN_IF_ERROR(CheckNumber(value));
      return Value{builder_.Apply(Operator::kNegate, value.node), first.column};
    }
    if (first.Is("(")) {
      RETURN_IF_ERROR(CheckDepth(first.column));
      RETURN_IF_ERROR(Advance());
      ASSIGN_OR_RETURN(const Value value, Comparison());
      RETURN_IF_ERROR(Expect(")"));
      return Value{value.node, first.column};
    }
    return ErrorAt(first.column, absl::StrCat("expected a number, an input, a function or '(', "
                                              "got ",
                                              TokenText()));
  }

  absl::StatusOr<Value> Number() {
    const Token token = token_;
    double value = 0;
    constexpr double kLargest = std::numeric_limits<float>::max();
    if (!absl::SimpleAtod(token.text, &value) || value > kLargest)
      return ErrorAt(token.column, absl::StrCat("constant ", Shown(token.text),
                                                " is too large; the largest is ", kLargest));
    RETURN_IF_ERROR(Advance());
    return Value{builder_.Constant(value), token.column};
  }

  absl::StatusOr<Value> Input(const Token& name) {
    const absl::string_view number = name.text.substr(1);
    int index = 0;
    if (name.text[0] != 'x' || number.empty() ||
        !std::all_of(number.begin(), number.end(), absl::ascii_isdigit)) {
      return ErrorAt(
          name.column,
          IsFunction(name.text)
              ? absl::StrCat(name.text, " is a function: expected '(' behind it")
              : absl::StrCat("unknown name ", Shown(name.text), "; inputs are x0 to x7"));
    }
    if (number.size() > 1 || !absl::SimpleAtoi(number, &index) || index >= kInputsMax) {
      return ErrorAt(name.column, absl::StrCat("there is no input ", Shown(name.text),
                                               "; there are at most ", kInputsMax, ", x0 to x7"));
    }
    if (named_at_[index] == 0) named_at_[index] = name.column;
    return Value{builder_.Input(index), name.column};
  }

  absl::StatusOr<Value> Call(const Token& name) {
    const Level level(&depth_);
    RETURN_IF_ERROR(CheckDepth(name.column));
    if (!IsFunction(name.text))
      return ErrorAt(name.column, absl::StrCat("unknown function ", Shown(name.text),
                                               "; there are ", kAllFunctions));
    RETURN_IF_ERROR(CountOperation(name.column));
    // Counted in the order of the text, so that masks do not depend on how calls are nested.
    const int dropout = name.text == "dropout" ? dropouts_++ : 0;
    RETURN_IF_ERROR(Advance());
    std::vector<Value> arguments;
    if (!token_.Is(")")) {
      while (true) {
        ASSIGN_OR_RETURN(const Value argument, Comparison());
        arguments.push_back(argument);
        const bool condition = name.text == "where" && arguments.size() == 1;
        if (!condition) RETURN_IF_ERROR(CheckNumber(argument));
        if (!token_.Is(",")) break;
        RETURN_IF_ERROR(Advance());
      }
    }
    RETURN_IF_ERROR(Expect(")"));
    ASSIGN_OR_RETURN(const int node, Resolve(name, arguments, dropout));
    return Value{node, name.column};
  }

  absl::Status WrongCount(const Token& name, size_t given, absl::string_view takes) const {
    return ErrorAt(name.column, absl::StrCat(name.text, " takes ", takes, ", got ", given));
  }

  absl::StatusOr<int> Resolve(const Token& name, absl::Span<const Value> arguments, int dropout) {
    const size_t given = arguments.size();
    if (name.text == "softmax" || name.text == "var") {
      if (given != 1) return WrongCount(name, given, "1 argument");
      const int a = arguments[0].node;
      return name.text == "var" ? builder_.Variance(a) : builder_.Softmax(a);
    }
    if (name.text == "where") {
      if (given != 3) return WrongCount(name, given, "3 arguments");
      if (!builder_.IsCondition(arguments[0].node))
        return ErrorAt(arguments[0].column, "the first argument of where() must be a comparison");
      return builder_.Apply(Operator::kSelect, arguments[0].node, arguments[1].node,
                            arguments[2].node);
    }
    if (name.text == "pow" || name.text == "dropout") {
      if (given != 2) return WrongCount(name, given, "2 arguments");
      return WithConstant(name, arguments[0].node, arguments[1], dropout);
    }
    bool takes_two = false;
    for (const Function& function : kFunctions) {
      if (function.name != name.text) continue;
      if (function.arguments == given)
        return builder_.Apply(function.op, arguments[0].node, given == 2 ? arguments[1].node : -1);
      takes_two |= function.arguments == 2;
    }
    return WrongCount(name, given, takes_two ? "1 or 2 arguments" : "1 argument");
  }

  absl::StatusOr<int> WithConstant(const Token& name, int a, const Value& second, int dropout) {
    const double* const constant = builder_.ConstantOf(second.node);
    if (constant == nullptr)
      return ErrorAt(second.column,
                     absl::StrCat("the second argument of ", name.text, "() must be a constant"));
    const double value = *constant;
    if (name.text == "pow") return builder_.Pow(a, value);
    if (!(value >= 0 && value <= 1))
      return ErrorAt(second.column,
                     absl::StrCat("dropout's probability is ", value, "; it must be 0 to 1"));
    return builder_.Dropout(a, value, dropout);
  }

  Lexer lexer_;
  Token token_;
  GraphBuilder builder_;
  int depth_ = 0;
  int operations_ = 0;
  int dropouts_ = 0;
  int inputs_ = 0;
  size_t named_at_[kInputsMax] = {};  // the column where an input is named first; 0: nowhere
};

}  // namespace

absl::StatusOr<Graph> Parse(absl::string_view text) {
  if (text.size() > kCharactersMax)
    return ErrorAt(kCharactersMax + 1, absl::StrCat("it has ", text.size(), " characters; at most ",
                                                    kCharactersMax, " are allowed"));
  return Parser(text).Run();
}

}  // namespace warpcall::expression
