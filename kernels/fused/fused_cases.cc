#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/check/cases.h"
#include "kernels/fused/fused.h"

namespace warpcall::fused {
namespace {

std::vector<ElementError> Errors(const Problem& problem, const Operands& inputs, int64_t index,
                                 absl::Span<const double>) {
  std::vector<ElementError> errors;
  for (const double error : ErrorsOf(problem, inputs, index))
    errors.push_back({.arithmetic = error});
  return errors;
}

constexpr char kTolerance[] =
    "follows from the expression, step by step and for each element: 2^-24 of the result for + - * "
    "sqrt and a row's sum or mean, 2^-23 for /, 2^-21 for functions, of the operand for gelu, each "
    "with what the operands' errors make of it; anything where these reach a pole, the end of "
    "float32's range or the other side of a comparison; and half a unit in the last place";

class CaseList {
 public:
  explicit CaseList(std::vector<Case>* cases) : cases_(cases) {}

  void Add(const std::string& expression, const std::vector<Dims>& shapes,
           Fill fill = Fill::kNormal, int64_t seed = 0) {
    const char* const fills[] = {"", " wide", " special", " broad", " spikes", " patterns"};
    std::string name = expression;
    for (const Dims& dims : shapes)
      absl::StrAppend(&name, " ", ToString({DataType::kFloat32, dims}));
    name += fills[static_cast<int>(fill)];
    cases_->push_back(
        {std::move(name), shapes, {{"expression", expression}, {"seed", seed}}, fill});
  }

  void AddAllFills(const std::string& expression, const std::vector<Dims>& shapes) {
    for (const Fill fill : {Fill::kNormal, Fill::kWide, Fill::kSpecial, Fill::kBroad})
      Add(expression, shapes, fill);
  }

 private:
  std::vector<Case>* cases_;
};

// Every function and operator, by itself.
void AddFunctions(CaseList list) {
  for (const char* const name :
       {"exp",  "exp2",     "log",  "sqrt",    "rsqrt", "tanh", "erf", "sigmoid", "relu", "abs",
        "gelu", "gelu_erf", "silu", "softmax", "sum",   "mean", "max", "min",     "var",  "-"}) {
    const std::string call = absl::StrCat(name, "(x0)");
    list.AddAllFills(call, {{3, 1009}});
    list.Add(call, {{4 * 4096}}, Fill::kPatterns);
  }
  for (const char* const both :
       {"x0 + x1", "x0 - x1", "x0 * x1", "x0 / x1", "min(x0, x1)", "max(x0, x1)",
        "where(x0 < x1, x0, 1)", "where(x0 <= x1, x0, 1)", "where(x0 > x1, x0, 1)",
        "where(x0 >= x1, x0, 1)", "where(x0 == x1, x0, x1 * 2)"})
    list.AddAllFills(both, {{1031}, {1031}});
  for (const char* const power : {"2", "3", "-1", "0.5", "-0.5", "1.5", "4", "0", "-3", "0.1"})
    list.AddAllFills(absl::StrCat("pow(x0, ", power, ")"), {{777}});
  for (const char* const p : {"0", "0.1", "0.5", "0.999", "1"})
    list.Add(absl::StrCat("dropout(x0, ", p, ")"), {{5, 1001}}, Fill::kNormal, 7);
  list.Add("dropout(x0, 0.25) + dropout(x0, 0.25)", {{4099}}, Fill::kNormal, int64_t{-3} << 40);
}

// Shapes around vectors and the grains of rows, with every kind of broadcast.
void AddShapes(CaseList list) {
  for (const int64_t n : {1,  2,  3,  7,   8,   9,    15,   16,   17,   31,    33,
                          63, 64, 65, 255, 257, 1023, 1025, 4095, 4097, 16385, 65537}) {
    list.Add("gelu(x0 + x1)", {{n}, {n}});
    list.Add("x0 * x1 + x2", {{5, n}, {n}, {5, 1}}, Fill::kSpecial);
    list.Add("softmax(x0 * 0.5)", {{3, n}});
    list.Add("(x0 - mean(x0)) * rsqrt(var(x0) + 1e-5) * x1 + x2", {{7, n}, {n}, {n}});
    list.Add("max(x0) - min(x0)", {{257, n}}, Fill::kSpikes);
  }
  const Dims whole = {2, 3, 4, 5};
  for (const Dims& other : {Dims{1}, Dims{5}, Dims{4, 1}, Dims{3, 1, 5}, Dims{2, 1, 4, 1},
                            Dims{2, 3, 1, 1}, Dims{1, 3, 1, 5}, Dims{2, 1, 1, 5}}) {
    list.Add("x0 * x1 - x1", {whole, other});
    list.Add("x1 / (1 + abs(x0)) + sum(x1) * max(x0)", {whole, other});
    list.Add("dropout(x1, 0.5) + x0", {whole, other}, Fill::kNormal, 11);
  }
  list.Add("x0 + x1", {{3, 1}, {1, 4}});
  list.Add("x0 * sum(x1) + mean(x0)", {{6, 1}, {17}});
  list.Add("sum(x0)", {{5, 33}});
  list.Add("x0 + sum(sum(x0)) + var(x1)", {{5, 33}, {5, 1}});
  list.Add("sum(x0 * x1) / sqrt(sum(x0 * x0) * sum(x1 * x1))", {{9, 1001}, {9, 1001}});
  list.Add("x0", {{1, 2, 1, 3, 2, 1, 2, 3}}, Fill::kSpecial);
  list.Add("x0 + x1", {{2, 1, 2, 1, 2, 1, 2, 1}, {1, 3, 1, 3, 1, 3, 1, 3}});
  for (const Dims& dims : {Dims{0}, Dims{0, 4}, Dims{4, 0}}) {
    list.Add("softmax(x0) + x1", {dims, {1}});
    list.Add("x0 + x1", {dims, dims});
  }
  list.Add("gelu(x0 + x1)", {{1031, 1000}, {1000}});
  list.Add("softmax(x0)", {{2, 300007}});
  list.Add("softmax(x0 + x1) * x2", {{2, 3, 1031}, {1031}, {2, 1, 1}}, Fill::kBroad);
}

// Values that several nodes need at once, all inputs, and chains as long as they may be.
void AddChains(CaseList list) {
  list.Add("x0 + x1 * x2 - x3 / x4 + x5 * x6 - x7", std::vector<Dims>(8, Dims{3, 257}));
  list.Add("tanh(x0) * sigmoid(x0) + exp(-abs(x0)) - log(1 + x0 * x0) + erf(x0)", {{2, 999}});
  list.Add("where(x0 > 0, x0, 0.01 * x0) + where(x0 * x1 <= x1, softmax(x1), relu(x0))",
           {{4, 321}, {321}}, Fill::kSpecial);
  std::string sum = "x0";
  for (int i = 0; i < 256; ++i) sum += i % 2 == 0 ? "+0.5" : "*0.75";
  list.Add(sum, {{2, 65}});
  std::string nested = "x0";
  for (int i = 0; i < 20; ++i) nested = absl::StrCat("tanh(", nested, " + x", i % 2, ")");
  list.Add(nested, {{2, 65}, {65}});
}

}  // namespace

OpCases Cases() {
  OpCases cases{.cases = {}, .errors = Errors, .tolerance = kTolerance, .allowances = {}};
  const CaseList list(&cases.cases);
  AddFunctions(list);
  AddShapes(list);
  AddChains(list);
  CaseList quick(&cases.quick);
  quick.Add("gelu(x0 + x1)", {{3, 257}, {257}});
  quick.Add("softmax(x0) * tanh(x1)", {{5, 65}, {5, 1}});
  quick.Add("where(x0 < 0, exp(x0), log(1 + x0))", {{1009}}, Fill::kSpecial);
  return cases;
}

}  // namespace warpcall::fused
