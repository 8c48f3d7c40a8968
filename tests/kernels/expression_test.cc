// The language of fused: accepted texts, refused ones with their places, and the parsed graphs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/expression/arithmetic.h"
#include "kernels/expression/graph.h"
#include "kernels/expression/layout.h"
#include "kernels/expression/mask.h"
#include "kernels/expression/parser.h"
#include "kernels/expression/schedule.h"
#include "tests/kernels/seed.h"

namespace warpcall::expression {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

// "multiply(x0, 2)"; nodes written out wherever they are used.
std::string Show(const Graph& graph, int node) {
  const Node& found = graph.nodes[static_cast<size_t>(node)];
  if (found.op == Operator::kInput) return absl::StrCat("x", found.index);
  if (found.op == Operator::kConstant) return absl::StrCat(found.value);
  std::vector<std::string> operands;
  for (int i = 0; i < OperandCount(found.op); ++i)
    operands.push_back(Show(graph, found.operands[i]));
  if (found.op == Operator::kPow || found.op == Operator::kDropout)
    operands.push_back(absl::StrCat(found.value));
  if (found.op == Operator::kDropout) operands.push_back(absl::StrCat("call ", found.index));
  return absl::StrCat(OperatorName(found.op), "(", absl::StrJoin(operands, ", "), ")");
}

std::string Parsed(const std::string& text) {
  const absl::StatusOr<Graph> graph = Parse(text);
  if (!graph.ok()) return std::string(graph.status().message());
  return Show(*graph, static_cast<int>(graph->nodes.size()) - 1);
}

TEST(ParserTest, OperatorsBindAsInArithmetic) {
  EXPECT_EQ(Parsed("x0+x1*x2-x3"), "subtract(add(x0, multiply(x1, x2)), x3)");
  EXPECT_EQ(Parsed("x0/x1/x2*x3"), "multiply(divide(divide(x0, x1), x2), x3)");
  EXPECT_EQ(Parsed("x0-x1-x2"), "subtract(subtract(x0, x1), x2)");
  EXPECT_EQ(Parsed("x0-(x1-x2)"), "subtract(x0, subtract(x1, x2))");
  EXPECT_EQ(Parsed("-x0*x1"), "multiply(negate(x0), x1)");
  EXPECT_EQ(Parsed("x0*-x1"), "multiply(x0, negate(x1))");
  EXPECT_EQ(Parsed("x0--x1"), "subtract(x0, negate(x1))");
  EXPECT_EQ(Parsed(" ( ( x0\t)\n) "), "x0");
}

TEST(ParserTest, FunctionsTakeTheirArguments) {
  for (const char* const name : {"exp", "exp2", "log", "sqrt", "rsqrt", "tanh", "erf", "sigmoid",
                                 "relu", "abs", "gelu", "gelu_erf", "silu"})
    EXPECT_EQ(Parsed(absl::StrCat(name, "(x0)")), absl::StrCat(name, "(x0)"));
  for (const char* const name : {"sum", "mean", "max", "min"})
    EXPECT_EQ(Parsed(absl::StrCat(name, "(x0)")), absl::StrCat("row_", name, "(x0)"));
  EXPECT_EQ(Parsed("max(x0, x1)"), "max(x0, x1)");
  EXPECT_EQ(Parsed("min(x0, x1)"), "min(x0, x1)");
  EXPECT_EQ(Parsed("where(x0 <= x1, x0, 1)"), "select(less_equal(x0, x1), x0, 1)");
  EXPECT_EQ(Parsed("where((x0 == 0), x0, 1)"), "select(equal(x0, 0), x0, 1)");
  EXPECT_EQ(Parsed("softmax(x0)"),
            "divide(exp(subtract(x0, row_max(x0))), row_sum(exp(subtract(x0, row_max(x0)))))");
  EXPECT_EQ(Parsed("var(x0)"),
            "row_mean(multiply(subtract(x0, row_mean(x0)), subtract(x0, row_mean(x0))))");
}

TEST(ParserTest, PowersThatAreProductsAreProducts) {
  EXPECT_EQ(Parsed("pow(x0, 1)"), "x0");
  EXPECT_EQ(Parsed("pow(x0, 2)"), "multiply(x0, x0)");
  EXPECT_EQ(Parsed("pow(x0, 3.0)"), "multiply(multiply(x0, x0), x0)");
  EXPECT_EQ(Parsed("pow(x0, -(1/2))"), "pow(x0, -0.5)");
}

TEST(ParserTest, ConstantsAreComputedInFloat64AndRoundedOnce) {
  EXPECT_EQ(Parsed("x0*(1e30*1e30*1e-59)"), "multiply(x0, 10)");
  EXPECT_EQ(Parsed("x0*sqrt(4)"), "multiply(x0, 2)");
  EXPECT_EQ(Parsed("x0*where(1 < 2, 1 + 2, 7)"), "multiply(x0, 3)");
  EXPECT_EQ(Parsed("where(1 < 2, x0, 7)"), "select(equal(1, 1), x0, 7)");
  EXPECT_EQ(Parsed("where(0.1 + 0.2 == 0.3, x0, 7)"), "select(equal(0, 1), x0, 7)");
  EXPECT_EQ(Parsed("x0*.5e1"), "multiply(x0, 5)");
  const Graph third = *Parse("x0*(1/3)");
  EXPECT_EQ(third.nodes[1].value, static_cast<double>(static_cast<float>(1.0 / 3.0)));
  EXPECT_EQ(Parsed("x0 + 340282346638528859811704183484516925440"), "add(x0, 3.40282e+38)");
}

TEST(ParserTest, WhatIsEqualIsOneNode) {
  const Graph graph = *Parse("exp(x0 - 1) / (1 + exp(x0 - 1)) + exp(x0 - 1)");
  EXPECT_EQ(graph.nodes.size(), 7u);  // x0, 1, x0 - 1, exp, 1 + exp, the quotient, the sum
  EXPECT_EQ(graph.operations, 9);
  EXPECT_EQ(Parse("softmax(x0) * softmax(x0)")->nodes.size(), 7u);
  // 0 and -0 differ, as do two calls of dropout.
  EXPECT_EQ(Parse("max(x0, 0) + max(x0, -0)")->nodes.size(), 6u);
  EXPECT_EQ(Parsed("dropout(x0, 0.5) * dropout(x0, 0.5)"),
            "multiply(dropout(x0, 0.5, call 0), dropout(x0, 0.5, call 1))");
}

struct Refused {
  const char* text;
  int column;
  const char* says;
};

TEST(ParserTest, ErrorsNameTheColumnAndWhatIsWrongThere) {
  const Refused refusals[] = {
      {"", 1, "got the end"},
      {"   ", 4, "got the end"},
      {"x0 +", 5, "got the end"},
      {"x0 x1", 4, "unexpected 'x1'"},
      {"x0 $ x1", 4, "unexpected character '$'"},
      {"x0 ^ 2", 4, "unexpected character '^'"},
      {"x0 = x1", 4, "unexpected character '='"},
      {"\xff", 1, "unexpected character '\\xff'"},
      {"(x0", 4, "expected ')', got the end"},
      {"x0)", 3, "unexpected ')'"},
      {"x0 + y", 6, "unknown name 'y'; inputs are x0 to x7"},
      {"x0 + x8", 6, "there is no input 'x8'; there are at most 8, x0 to x7"},
      {"x0 + x10", 6, "at most 8"},
      {"x0 + x00", 6, "there is no input 'x00'"},
      {"x0 + x", 6, "unknown name 'x'"},
      {"x0 + x2", 6, "x2 is named, but not x1"},
      {"1 + x1", 5, "x1 is named, but not x0"},
      {"1 + 2", 1, "it names no input"},
      {"x0 + foo(x0)", 6, "unknown function 'foo'; there are exp, exp2"},
      {"x0 + exp", 6, "exp is a function"},
      {"x0 + exp(x0, x0)", 6, "exp takes 1 argument, got 2"},
      {"exp()", 1, "exp takes 1 argument, got 0"},
      {"max(x0, x0, x0)", 1, "max takes 1 or 2 arguments, got 3"},
      {"where(x0 < 1, x0)", 1, "where takes 3 arguments, got 2"},
      {"where(x0, x0, x0)", 7, "must be a comparison"},
      {"where(x0 < 1, x0 < 1, 0)", 15, "only as the first argument of where()"},
      {"x0 < 1", 1, "only as the first argument of where()"},
      {"1 + (x0 < 1)", 5, "only as the first argument of where()"},
      {"x0 < 1 < 2", 8, "unexpected '<'"},
      {"-(x0 < 1)", 2, "only as the first"},
      {"exp(x0 < 1)", 5, "only as the first"},
      {"pow(x0, x0)", 9, "the second argument of pow() must be a constant"},
      {"pow(x0)", 1, "pow takes 2 arguments, got 1"},
      {"dropout(x0, x0)", 13, "the second argument of dropout() must be a constant"},
      {"dropout(x0, 1.5)", 13, "probability is 1.5; it must be 0 to 1"},
      {"dropout(x0, -0.5)", 13, "probability is -0.5; it must be 0 to 1"},
      {"dropout(x0, 0/0)", 13, "it must be 0 to 1"},
      {"x0 * 1e39", 6, "constant '1e39' is too large; the largest is 3.40282e+38"},
      {"x0 * 1e999999999999", 6, "is too large"},
      {"x0 * 1.2.3", 9, "unexpected '.3'"},
      {"x0 * 1e", 7, "unexpected 'e'"},
      {"x0 * .", 6, "unexpected character '.'"},
      {"x0,x1", 3, "unexpected ','"},
      {"exp(x0,)", 8, "got ')'"},
      {"+x0", 1, "got '+'"},
  };
  for (const Refused& refusal : refusals) {
    const absl::Status status = Parse(refusal.text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << refusal.text;
    EXPECT_THAT(std::string(status.message()),
                StartsWith(absl::StrCat("expression, column ", refusal.column, ": ")))
        << refusal.text;
    EXPECT_THAT(std::string(status.message()), HasSubstr(refusal.says)) << refusal.text;
  }
}

std::string Repeated(const std::string& text, int count) {
  std::string repeated;
  for (int i = 0; i < count; ++i) repeated += text;
  return repeated;
}

TEST(ParserTest, EachLimitIsTakenAndTheNextIsRefused) {
  EXPECT_TRUE(Parse("x0" + Repeated("+x0", kOperationsMax)).ok());
  EXPECT_EQ(Parsed("x0" + Repeated("+x0", kOperationsMax + 1)),
            "expression, column 771: this is operation 257; at most 256 are allowed");
  EXPECT_EQ(Parsed("x0" + Repeated("+abs(x0)", 129)),
            "expression, column 1028: this is operation 257; at most 256 are allowed");
  for (const auto& [open, close] :
       std::vector<std::pair<std::string, std::string>>{{"(", ")"}, {"abs(", ")"}, {"-", ""}}) {
    const auto nested = [&open = open, &close = close](int depth) {
      return absl::StrCat(Repeated(open, depth), "x0", Repeated(close, depth));
    };
    EXPECT_TRUE(Parse(nested(kDepthMax)).ok());
    EXPECT_THAT(Parsed(nested(kDepthMax + 1)),
                StartsWith(absl::StrCat("expression, column ", kDepthMax * open.size() + 1,
                                        ": nested 65 deep; at most 64 levels")));
  }
  const std::string longest = "x0" + std::string(kCharactersMax - 2, ' ');
  EXPECT_TRUE(Parse(longest).ok());
  EXPECT_EQ(Parsed(longest + " "),
            "expression, column 4097: it has 4097 characters; at most 4096 are allowed");
  EXPECT_TRUE(Parse("x0+x1+x2+x3+x4+x5+x6+x7").ok());
}

TEST(ParserTest, MessagesStayShort) {
  EXPECT_LT(Parsed(std::string(4000, '9')).size(), 200u);
  EXPECT_LT(Parsed("x0+" + std::string(4000, 'y')).size(), 200u);
}

// examples/kat_vectors of Random123 1.14 (J. Salmon et al.).
TEST(MaskTest, PhiloxHasItsPublishedAnswers) {
  EXPECT_EQ(Philox({0, 0, 0, 0}, 0, 0),
            (PhiloxWords{0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u}));
  EXPECT_EQ(Philox({~0u, ~0u, ~0u, ~0u}, ~0u, ~0u),
            (PhiloxWords{0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu}));
  EXPECT_EQ(Philox({0x243f6a88u, 0x85a308d3u, 0x13198a2eu, 0x03707344u}, 0xa4093822u, 0x299f31d0u),
            (PhiloxWords{0xd16cfe09u, 0x94fdcceb, 0x5001e420u, 0x24126ea1u}));
}

TEST(MaskTest, CounterAndKeyAreLaidOutAsSaid) {
  const int64_t seed = 0x299f31d0a4093822;
  const int64_t group = 0x85a308d3243f6a88 & INT64_MAX;
  const Mask mask(0.5, 0x13198a2e, seed);
  EXPECT_EQ(mask.Words(group),
            Philox({0x243f6a88u, 0x05a308d3u, 0x13198a2eu, 0}, 0xa4093822u, 0x299f31d0u));
  EXPECT_TRUE(mask.Keeps(0x80000000u));
  EXPECT_FALSE(mask.Keeps(0x7FFFFFFFu));
  EXPECT_TRUE(Mask(0, 0, 0).Keeps(0));
  EXPECT_FALSE(Mask(1, 0, 0).Keeps(~0u));
  for (int64_t place = 0; place < 8; ++place)
    EXPECT_EQ(mask.KeepsElement(place), mask.Words(place / 4)[place % 4] >= 0x80000000u);
}

TEST(LayoutTest, NeighboursThatAllInputsWalkAlikeAreOne) {
  const auto layout = [](const std::string& text, const std::vector<Dims>& shapes) {
    std::vector<TensorSpec> specs;
    for (const Dims& dims : shapes) specs.push_back({DataType::kFloat32, dims});
    const Layout found = LayoutOf(*Parse(text), specs);
    std::string shown = absl::StrCat(absl::StrJoin(found.outer, "x"), " of ", found.columns);
    for (const Walk& walk : found.inputs)
      absl::StrAppend(&shown, "; ", absl::StrJoin(walk.strides, ","), walk.wide ? " wide" : "");
    return shown;
  };
  EXPECT_EQ(layout("x0 + x1", {{2, 3, 4}, {2, 3, 4}}), " of 24;  wide;  wide");
  EXPECT_EQ(layout("sum(x0) + x1", {{2, 3, 4}, {2, 3, 4}}), "6 of 4; 4 wide; 4 wide");
  EXPECT_EQ(layout("x0 + x1", {{2, 3, 4}, {4}}), "6 of 4; 4 wide; 0 wide");
  EXPECT_EQ(layout("x0 + x1", {{2, 3, 4}, {1}}), " of 24;  wide; ");
  EXPECT_EQ(layout("x0 + x1", {{2, 3, 4}, {2, 1, 1}}), "2 of 12; 12 wide; 1");
  EXPECT_EQ(layout("x0 + x1", {{2, 3, 4}, {3, 1}}), "2x3 of 4; 12,4 wide; 0,1");
  EXPECT_EQ(layout("x0 + x1", {{1, 5, 1}, {5, 1}}), " of 5;  wide;  wide");
  EXPECT_EQ(layout("sum(x0)", {{5, 1}}), "5 of 1; 1");
  EXPECT_EQ(layout("x0", {{1, 1}}), " of 1; ");
  // A mask is counted in its argument's own shape.
  EXPECT_EQ(layout("x0 + dropout(x1, 0.5)", {{2, 3, 4}, {2, 3, 4}}), " of 24;  wide;  wide");
}

TEST(ScheduleTest, AReductionIsKnownAfterThePassThatTakesItsElements) {
  const Graph graph = *Parse("(x0 - mean(x0)) * rsqrt(var(x0))");
  const Layout layout = LayoutOf(graph, std::vector<TensorSpec>{{DataType::kFloat32, {4, 9}}});
  const Schedule again = ScheduleOf(graph, layout, Keeping::kNothing);
  ASSERT_EQ(again.passes.size(), 3u);
  EXPECT_EQ(again.passes[0].wide.size(), 1u);  // x0
  EXPECT_EQ(again.passes[1].wide.size(), 3u);  // x0, the distance, its square
  EXPECT_EQ(again.passes[2].wide.size(), 3u);  // x0, the distance, the product
  EXPECT_EQ(again.passes[2].narrow.size(), 1u);
  const Schedule kept = ScheduleOf(graph, layout, Keeping::kRow);
  ASSERT_EQ(kept.passes.size(), 3u);
  EXPECT_EQ(kept.passes[1].wide.size(), 2u);
  EXPECT_EQ(kept.passes[2].wide.size(), 1u);
}

// The first pass keeps no value that only a later pass needs.
TEST(ScheduleTest, InputsAreReadInThePassThatNeedsThem) {
  const Graph graph = *Parse("(x0 - mean(x0)) * (2 * x1) + x2");
  const Layout layout = LayoutOf(graph, std::vector<TensorSpec>{{DataType::kFloat32, {4, 9}},
                                                                {DataType::kFloat32, {9}},
                                                                {DataType::kFloat32, {9}}});
  const Schedule kept = ScheduleOf(graph, layout, Keeping::kRow);
  ASSERT_EQ(kept.passes.size(), 2u);
  EXPECT_EQ(kept.passes[0].wide.size(), 1u);  // x0
  EXPECT_EQ(kept.passes[1].wide.size(), 6u);
}

// Bounds from the operands' errors, where float32 would be far off.
TEST(BoundedTest, PolesAndTheEndOfTheRangeLetAnythingThrough) {
  const auto compute = [](Operator op, Bounded a, Bounded b = {}) {
    const Bounded operands[] = {a, b, {}};
    return Compute(Node{.op = op, .operands = {0, 1, -1}}, operands);
  };
  EXPECT_TRUE(std::isinf(compute(Operator::kDivide, {1, 0}, {1e-8, 1e-7}).error));
  // 1e8 x (the operand's 1e-7 + two roundings of 2^-24).
  EXPECT_LT(compute(Operator::kDivide, {1, 0}, {1e-8, 1e-15}).error, 22);
  EXPECT_TRUE(std::isinf(compute(Operator::kLog, {1e-9, 1e-8}).error));
  EXPECT_TRUE(std::isinf(compute(Operator::kSqrt, {0, 1e-8}).error));
  EXPECT_TRUE(
      std::isinf(compute(Operator::kMultiply, {0x1.FFFFFEp127, 0}, {1 + 0x1p-24, 0}).error));
  // Certainly beyond the range, and certainly not a number.
  EXPECT_EQ(compute(Operator::kMultiply, {3e38, 0}, {2, 0}).error, 0);
  EXPECT_EQ(compute(Operator::kMultiply, {3e38, 0}, {2, 0}).value, HUGE_VAL);
  EXPECT_EQ(compute(Operator::kSqrt, {-1, 0.5}).error, 0);
  // Too close to decide, and far enough.
  EXPECT_TRUE(std::isinf(compute(Operator::kLess, {1, 1e-7}, {1.00000005, 0}).error));
  EXPECT_EQ(compute(Operator::kLess, {1, 1e-7}, {1.1, 0}).error, 0);
  EXPECT_EQ(compute(Operator::kEqual, {1, 0}, {1, 0}).error, 0);
}

// A number of either sign whose size is anywhere in float32's range, or 0.
double AnySize(std::mt19937_64& random) {
  const double size = std::exp2(std::uniform_real_distribution<>(-149, 128)(random));
  const int sign = std::uniform_int_distribution<>(-4, 4)(random);
  return sign == 0 ? 0 : std::copysign(InRange(size), sign);
}

// Any point of the operands' ranges is an operand that a row in float32 may have.
TEST(BoundedTest, NoPointOfTheOperandsRangesLeadsBeyondTheBound) {
  std::mt19937_64 random(testing::RunSeed());
  std::vector<Node> nodes;
  for (int op = 0; op <= static_cast<int>(Operator::kSelect); ++op) {
    const Node node = {.op = static_cast<Operator>(op), .operands = {0, 1, 2}};
    if (OperandCount(node.op) > 0 && node.op != Operator::kPow && node.op != Operator::kDropout)
      nodes.push_back(node);
  }
  for (const double power : {-3., -2., -1., -0.5, 0.5, 1., 2., 2.5, 3., 4., 7.})
    nodes.push_back({.op = Operator::kPow, .operands = {0}, .value = power});
  ASSERT_GE(nodes.size(), 30u);
  for (const Node& node : nodes) {
    for (int i = 0; i < 3000; ++i) {
      Bounded operands[kOperandsMax];
      for (Bounded& x : operands) {
        x = {AnySize(random), i % 7 == 0 ? 0 : std::fabs(AnySize(random))};
        if (std::fabs(x.value) + x.error >= kOverflow) x.error = 0;  // or else infinite
        if (i % 2 == 0) x.error = std::min(x.error, std::fabs(x.value));
      }
      const Bounded bounded = Compute(node, operands);
      for (int j = 0; j < 8; ++j) {
        double point[kOperandsMax];
        for (int k = 0; k < kOperandsMax; ++k) {
          const double part = std::uniform_real_distribution<>(-1, 1)(random);
          point[k] = InRange(operands[k].value + (j == 0 ? 0 : part * operands[k].error));
          if (j == 1 && std::fabs(operands[k].value) <= operands[k].error) point[k] = 0;
        }
        const double value = InRange(Compute(node, point));
        const bool same =
            value == bounded.value || (std::isnan(value) && std::isnan(bounded.value));
        // The points and distances themselves are rounded to float64.
        const double size = std::isinf(bounded.value) ? 0 : std::fabs(bounded.value);
        const double bound = bounded.error + 0x1p-51 * (size + bounded.error);
        ASSERT_TRUE(same || std::isinf(bounded.error) || std::fabs(value - bounded.value) <= bound)
            << OperatorName(node.op) << " " << node.value << " of " << operands[0].value << " +- "
            << operands[0].error << ", " << operands[1].value << " +- " << operands[1].error
            << " is " << bounded.value << " +- " << bounded.error << ", but of " << point[0] << ", "
            << point[1] << " " << value << "; seed " << testing::RunSeed();
      }
    }
  }
}

TEST(BoundedTest, ErrorsAreSmallWhereArithmeticIsWell) {
  const auto compute = [](Operator op, Bounded a, Bounded b = {}) {
    const Bounded operands[] = {a, b, {}};
    return Compute(Node{.op = op, .operands = {0, 1, -1}}, operands).error;
  };
  EXPECT_LE(compute(Operator::kAdd, {1, 0}, {2, 0}), 3 * 0x1p-24);
  EXPECT_LE(compute(Operator::kExp, {1, 0x1p-24}), 26 * 0x1p-24);
  EXPECT_EQ(compute(Operator::kMax, {1, 0}, {2, 0}), 0);
  EXPECT_EQ(compute(Operator::kRelu, {-1, 0}), 0);
  Reduction sum(Operator::kRowSum);
  for (int i = 0; i < 1000; ++i) sum.Take(Bounded{1, 0x1p-24});
  Bounded result;
  sum.Get(1000, &result);
  EXPECT_EQ(result.value, 1000);
  EXPECT_LE(result.error, 2001 * 0x1p-24);
}

}  // namespace
}  // namespace warpcall::expression
