#include "tests/kernels/random_expression.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <numbers>

#include "absl/strings/str_cat.h"

namespace warpcall::testing {
namespace {

using Value = long double;

constexpr Value kNan = std::numeric_limits<Value>::quiet_NaN();
constexpr Value kInfinity = std::numeric_limits<Value>::infinity();

Value Gelu(Value x) {
  if (x == -kInfinity) return 0;
  const Value a = std::sqrt(2 / std::numbers::pi_v<Value>) * (x + 0.044715L * x * x * x);
  return x / (1 + std::exp(-2 * a));
}

Value GeluErf(Value x) {
  return x == -kInfinity ? 0 : x / 2 * std::erfc(-x / std::numbers::sqrt2_v<Value>);
}

const std::map<std::string, std::function<Value(Value)>>& Unary() {
  static const auto* const functions = new std::map<std::string, std::function<Value(Value)>>{
      {"-", [](Value x) { return -x; }},
      {"exp", [](Value x) { return std::exp(x); }},
      {"exp2", [](Value x) { return std::exp2(x); }},
      {"log", [](Value x) { return std::log(x); }},
      {"sqrt", [](Value x) { return std::sqrt(x); }},
      {"rsqrt", [](Value x) { return 1 / std::sqrt(x); }},
      {"tanh", [](Value x) { return std::tanh(x); }},
      {"erf", [](Value x) { return std::erf(x); }},
      {"sigmoid", [](Value x) { return 1 / (1 + std::exp(-x)); }},
      {"relu", [](Value x) { return x < 0 ? 0 : x; }},
      {"abs", [](Value x) { return std::fabs(x); }},
      {"gelu", Gelu},
      {"gelu_erf", GeluErf},
      {"silu", [](Value x) { return x == -kInfinity ? 0 : x / (1 + std::exp(-x)); }}};
  return *functions;
}

const std::map<std::string, std::function<Value(Value, Value)>>& Binary() {
  static const auto* const functions =
      new std::map<std::string, std::function<Value(Value, Value)>>{
          {"+", [](Value a, Value b) { return a + b; }},
          {"-", [](Value a, Value b) { return a - b; }},
          {"*", [](Value a, Value b) { return a * b; }},
          {"/", [](Value a, Value b) { return a / b; }},
          {"min", [](Value a, Value b) { return a != a || b != b ? kNan : std::min(a, b); }},
          {"max", [](Value a, Value b) { return a != a || b != b ? kNan : std::max(a, b); }},
          {"<", [](Value a, Value b) { return static_cast<Value>(a < b); }},
          {"<=", [](Value a, Value b) { return static_cast<Value>(a <= b); }},
          {">", [](Value a, Value b) { return static_cast<Value>(a > b); }},
          {">=", [](Value a, Value b) { return static_cast<Value>(a >= b); }},
          {"==", [](Value a, Value b) { return static_cast<Value>(a == b); }},
          {"pow", [](Value a, Value b) { return std::pow(a, b); }}};
  return *functions;
}

Value Reduce(const std::string& name, const Value* row, int64_t count) {
  Value sum = 0;
  Value greatest = -kInfinity;
  Value least = kInfinity;
  bool nan = false;
  for (int64_t i = 0; i < count; ++i) {
    sum += row[i];
    greatest = std::max(greatest, row[i]);
    least = std::min(least, row[i]);
    nan |= std::isnan(row[i]);
  }
  if (name == "sum") return sum;
  if (name == "mean") return sum / static_cast<Value>(count);
  if (name == "max") return nan ? kNan : greatest;
  return nan ? kNan : least;
}

bool IsReduction(const std::string& name) {
  return name == "sum" || name == "mean" || name == "max" || name == "min";
}

int64_t Product(const Dims& dims) {
  int64_t product = 1;
  for (const int64_t dim : dims) product *= dim;
  return product;
}

Dims BroadcastDims(const std::vector<Values>& operands) {
  Dims dims;
  for (const Values& operand : operands) {
    while (dims.size() < operand.dims.size()) dims.insert(dims.begin(), 1);
    for (size_t i = 0; i < operand.dims.size(); ++i) {
      int64_t& dim = dims[dims.size() - 1 - i];
      const int64_t own = operand.dims[operand.dims.size() - 1 - i];
      if (dim == 1) dim = own;
    }
  }
  return dims;
}

// A step's result, with the range of float32.
Value InRange(Value value) {
  return std::fabs(value) >= 0x1.FFFFFFp127L ? std::copysign(kInfinity, value) : value;
}

// Element by element; constants meet tensors as float32.
Values Map(std::vector<Values> operands, const std::function<Value(const Value*)>& function) {
  const bool constant =
      std::all_of(operands.begin(), operands.end(), [](const Values& v) { return v.constant; });
  for (Values& operand : operands)
    if (operand.constant && !constant)
      operand.values[0] = static_cast<float>(static_cast<double>(operand.values[0]));
  Values result = {.dims = BroadcastDims(operands), .values = {}, .constant = constant};
  for (int64_t i = 0, count = Product(result.dims); i < count; ++i) {
    std::vector<Value> arguments;
    for (const Values& operand : operands)
      arguments.push_back(BroadcastAt(operand, result.dims, i));
    result.values.push_back(constant ? function(arguments.data())
                                     : InRange(function(arguments.data())));
  }
  return result;
}

Values ReduceRows(const std::string& name, const Values& operand) {
  Values result = {.dims = operand.dims, .values = {}, .constant = false};
  const int64_t columns = operand.dims.back();
  result.dims.back() = 1;
  for (int64_t row = 0; row < Product(result.dims); ++row)
    result.values.push_back(InRange(Reduce(name, operand.values.data() + row * columns, columns)));
  return result;
}

Tree Node(std::string name, std::vector<Tree> children) {
  return {.name = std::move(name), .children = std::move(children)};
}

}  // namespace

long double BroadcastAt(const Values& values, const Dims& dims, int64_t index) {
  int64_t at = 0;
  int64_t stride = 1;
  for (size_t i = 0; i < dims.size(); ++i) {
    const int64_t dim = dims[dims.size() - 1 - i];
    if (i < values.dims.size()) {
      const int64_t own = values.dims[values.dims.size() - 1 - i];
      if (own != 1) at += index % dim * stride;
      stride *= own;
    }
    index /= dim;
  }
  return values.values[static_cast<size_t>(at)];
}

Values Evaluate(const Tree& tree, const std::vector<Values>& inputs) {
  if (tree.children.empty()) {
    if (tree.name[0] == 'x') return inputs[static_cast<size_t>(tree.name[1] - '0')];
    return {.dims = {1}, .values = {std::stod(tree.name)}, .constant = true};
  }
  std::vector<Values> operands;
  for (const Tree& child : tree.children) operands.push_back(Evaluate(child, inputs));
  if (tree.name == "where")
    return Map(operands, [](const Value* v) { return v[0] != 0 ? v[1] : v[2]; });
  if (operands.size() == 2) {
    const auto& function = Binary().at(tree.name);
    return Map(operands, [&](const Value* v) { return function(v[0], v[1]); });
  }
  if (IsReduction(tree.name)) return ReduceRows(tree.name, operands[0]);
  if (tree.name == "var") {
    const Values mean = ReduceRows("mean", operands[0]);
    const auto square = [](const Value* v) { return (v[0] - v[1]) * (v[0] - v[1]); };
    return ReduceRows("mean", Map({operands[0], mean}, square));
  }
  if (tree.name == "softmax") {
    const Values max = ReduceRows("max", operands[0]);
    const Values power =
        Map({operands[0], max}, [](const Value* v) { return std::exp(v[0] - v[1]); });
    return Map({power, ReduceRows("sum", power)}, [](const Value* v) { return v[0] / v[1]; });
  }
  const auto& function = Unary().at(tree.name);
  return Map(operands, [&](const Value* v) { return function(v[0]); });
}

RandomExpression::RandomExpression(uint64_t seed, const Options& options)
    : options_(options), random_(seed) {
  tree_ = Grow(options.depth);
  if (inputs_ == 0) tree_ = Node("+", {Node("x0", {}), std::move(tree_)});
  inputs_ = std::max(inputs_, 1);
  // Inputs are named without gaps.
  for (int i = 0; i < inputs_; ++i)
    tree_ = Node(
        "+", {std::move(tree_), Node("*", {Node("0.125", {}), Node(absl::StrCat("x", i), {})})});
  text_ = Write(tree_, 0);
}

Tree RandomExpression::Leaf() {
  if (Draw(3) == 0) {
    const char* const constants[] = {"1", "0.5", "2", "1e-3", "0.1", "3.25", "7", ".25"};
    return Node(constants[Draw(7)], {});
  }
  const int input = Draw(options_.inputs - 1);
  inputs_ = std::max(inputs_, input + 1);
  return Node(absl::StrCat("x", input), {});
}

Tree RandomExpression::Grow(int depth) {
  if (depth == 0 || Draw(9) == 0) return Leaf();
  const auto child = [&] { return Grow(depth - 1); };
  const int kind = Draw(options_.dropout ? 10 : 9);
  if (kind <= 3) {
    const char* const operators[] = {"+", "-", "*", "/", "min", "max"};
    const char* const name = operators[Draw(5)];
    Tree left = child();
    return Node(name, {std::move(left), child()});
  }
  if (kind == 4) {
    const char* const comparisons[] = {"<", "<=", ">", ">=", "=="};
    Tree condition = Node(comparisons[Draw(4)], {child(), child()});
    Tree yes = child();
    return Node("where", {std::move(condition), std::move(yes), child()});
  }
  if (kind == 5) {
    const char* const exponents[] = {"2", "0.5", "3", "1.5", "4", "1"};
    return Node("pow", {child(), Node(exponents[Draw(5)], {})});
  }
  if (kind == 6 && options_.reductions) {
    const char* const reductions[] = {"sum", "mean", "max", "min", "var", "softmax"};
    // A row of one constant is no row.
    return Node(reductions[Draw(5)], {Node("+", {Node("x0", {}), child()})});
  }
  if (kind == 10) return Node("dropout", {child(), Node("0.25", {})});
  auto function = Unary().begin();
  std::advance(function, Draw(static_cast<int>(Unary().size()) - 1));
  return Node(function->first, {child()});
}

// `above`: 0 nothing, 1 a comparison's side, 2 a sum's, 3 a product's or the right of a sum's, 4
// the operand of a minus or the right of a product's.
std::string RandomExpression::Write(const Tree& tree, int above) {
  const std::string space(static_cast<size_t>(Draw(5) / 5), ' ');
  const auto enclose = [&](std::string text, int level) {
    const bool needed = level < above;
    if (needed || Draw(15) == 0) return absl::StrCat("(", space, text, space, ")");
    return text;
  };
  const std::string& name = tree.name;
  if (tree.children.empty()) return enclose(name, 5);
  if (tree.children.size() == 1 && name == "-")
    return enclose(absl::StrCat("-", space, Write(tree.children[0], 4)), 4);
  if (tree.children.size() == 2 &&
      absl::string_view("+-*/<=>==").find(name) != absl::string_view::npos) {
    const int level = name == "+" || name == "-" ? 2 : name == "*" || name == "/" ? 3 : 1;
    const std::string left = Write(tree.children[0], std::max(level, 2));
    const std::string right = Write(tree.children[1], std::max(level + 1, 2));
    return enclose(absl::StrCat(left, space, name, space, right), level);
  }
  std::string text = absl::StrCat(name, "(");
  for (size_t i = 0; i < tree.children.size(); ++i) {
    const bool condition = name == "where" && i == 0;
    absl::StrAppend(&text, i == 0 ? "" : ",", space, Write(tree.children[i], condition ? 1 : 2));
  }
  return enclose(text + ")", 5);
}

}  // namespace warpcall::testing
