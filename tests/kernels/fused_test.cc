// The problems that fused takes, and its definition against formulas computed another way.
#include "kernels/fused/fused.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "kernels/check/cases.h"
#include "kernels/check/truth.h"
#include "kernels/expression/mask.h"
#include "tests/kernels/random_expression.h"
#include "tests/kernels/rows.h"
#include "tests/kernels/seed.h"

namespace warpcall::testing {
namespace {

using ::testing::HasSubstr;

std::vector<TensorSpec> Specs(const std::vector<Dims>& shapes, DataType type = DataType::kFloat32) {
  std::vector<TensorSpec> specs;
  for (const Dims& dims : shapes) specs.push_back({type, dims});
  return specs;
}

absl::StatusOr<Problem> Fused(const std::string& expression, const std::vector<Dims>& shapes) {
  return MakeProblem(FusedOp(), Specs(shapes), {{"expression", expression}});
}

std::string RefusalOf(const absl::StatusOr<Problem>& problem) {
  EXPECT_EQ(problem.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(problem.status().message());
}

TEST(FusedTest, TheOutputHasTheShapeOfAllInputs) {
  EXPECT_EQ(Fused("x0 + x1", {{3, 1}, {4}})->outputs[0].dims, (Dims{3, 4}));
  EXPECT_EQ(Fused("sum(x0)", {{3, 4}})->outputs[0].dims, (Dims{3, 4}));
  EXPECT_EQ(Fused("sum(x0) + sum(x1)", {{3, 4}, {2, 1, 1}})->outputs[0].dims, (Dims{2, 3, 4}));
  EXPECT_EQ(Fused("x0 + x1", {{0, 4}, {1, 1}})->outputs[0].dims, (Dims{0, 4}));
}

TEST(FusedTest, WhatDoesNotFitIsRefusedWithWhatItIs) {
  EXPECT_THAT(RefusalOf(Fused("x0 + x1", {{3, 4}, {5}})),
              HasSubstr("x0, float32[3,4], and x1, float32[5], cannot be broadcast"));
  EXPECT_THAT(RefusalOf(Fused("sum(x0) + x1", {{3, 4}, {3, 5}})), HasSubstr("is 4 and 5"));
  EXPECT_THAT(RefusalOf(Fused("x0 + x1", {{3, 4}})), HasSubstr("names 2 inputs, x0 to x1, got 1"));
  EXPECT_THAT(RefusalOf(Fused("x0", {{3}, {3}})), HasSubstr("names 1 input, x0 to x0, got 2"));
  EXPECT_THAT(RefusalOf(Fused("x0", {})), HasSubstr("takes 1 to 8 inputs"));
  EXPECT_THAT(RefusalOf(Fused("x0", std::vector<Dims>(9, Dims{1}))), HasSubstr("got 9"));
  EXPECT_THAT(RefusalOf(Fused("x0 +", {{3}})), HasSubstr("expression, column 5: "));
  EXPECT_THAT(RefusalOf(MakeProblem(FusedOp(), Specs({{3}}), {})),
              HasSubstr("attribute expression is required and was not given"));
  const std::vector<TensorSpec> mixed = {{DataType::kFloat32, {3}}, {DataType::kFloat16, {3}}};
  EXPECT_THAT(RefusalOf(MakeProblem(FusedOp(), mixed, {{"expression", std::string("x0 + x1")}})),
              HasSubstr("input 1 (x1) is float16 and input 0 (x0) float32"));
  EXPECT_THAT(RefusalOf(Fused("x0 + x1", {{int64_t{1} << 40, 1}, {int64_t{1} << 40}})),
              HasSubstr("overflows"));
}

TEST(FusedTest, WorkCountsInputsOnceAndEveryOperation) {
  const Work work = FusedOp().work(*Fused("x0 * x1 + sum(x0)", {{8, 16}, {16}}));
  EXPECT_EQ(work.bytes, 4 * (128 + 16 + 128));
  EXPECT_EQ(work.flops, 3 * 128);
  // x1 + 1 is computed once for all rows.
  EXPECT_EQ(FusedOp().work(*Fused("x0 * (x1 + 1)", {{8, 16}, {16}})).flops, 128 + 16);
}

Values ValuesOf(const TensorSpec& spec, const Memory& memory) {
  Values values = {.dims = spec.dims, .values = {}, .constant = false};
  for (int64_t i = 0; i < spec.elements(); ++i)
    values.values.push_back(ValueAt(memory.data(), spec.data_type, i));
  return values;
}

struct Agreement {
  int64_t elements = 0;
  int64_t bounded = 0;  // elements whose error bound is finite
  int64_t apart = 0;    // where the two differ by more than float64's roundings explain
};

// The definition against the tree.
Agreement ExpectTree(const RandomExpression& expression, const std::vector<Dims>& shapes) {
  const auto problem = MakeProblem(FusedOp(), Specs(shapes), {{"expression", expression.text()}});
  EXPECT_TRUE(problem.ok()) << problem.status();
  if (!problem.ok()) return {};
  std::vector<Memory> inputs;
  std::vector<Values> values;
  for (const TensorSpec& spec : problem->inputs) {
    inputs.push_back(FilledInput(spec, Fill::kNormal, absl::StrCat("tree", inputs.size())));
    values.push_back(ValuesOf(spec, inputs.back()));
  }
  const Truth truth = TruthFor(FusedOp(), *problem, inputs);
  const Values expected = Evaluate(expression.tree(), values);
  Agreement agreement;
  for (size_t i = 0; i < truth.values.size(); ++i) {
    ++agreement.elements;
    const double error = truth.errors[i].arithmetic;
    if (std::isinf(error)) continue;
    ++agreement.bounded;
    const auto e = BroadcastAt(expected, problem->outputs[0].dims, static_cast<int64_t>(i));
    const double v = truth.values[i];
    if (std::isnan(v) || std::isinf(v)) {
      EXPECT_TRUE(std::isnan(v) ? std::isnan(e) : e == v)
          << "element " << i << " is " << v << ", not " << e;
    } else {
      // Within the bound, as behind comparisons that are too close, the two may choose differently.
      const auto distance = static_cast<double>(std::fabs(v - e));
      const double roundings = 1e-12 * std::fabs(v) + 1e-30;
      EXPECT_LE(distance, error + roundings) << "element " << i << " is " << v << ", not " << e;
      if (distance > 1e-3 * error + roundings) ++agreement.apart;
    }
  }
  return agreement;
}

TEST(FusedDefinition, IsWhatTheTreeSays) {
  Agreement all;
  for (uint64_t i = 0; i < 600; ++i) {
    const RandomExpression expression(RunSeed() + i, {.depth = 1 + static_cast<int>(i % 5)});
    SCOPED_TRACE(absl::StrCat("seed ", RunSeed(), " + ", i, ": ", expression.text()));
    const std::vector<Dims> shapes[] = {
        {{3, 5}, {5}, {3, 1}}, {{2, 3, 4}, {2, 1, 4}, {1}}, {{7}, {7}, {7}}, {{6, 1}, {5}, {6, 5}}};
    std::vector<Dims> taken = shapes[i % 4];
    taken.resize(static_cast<size_t>(expression.inputs()));
    const Agreement agreement = ExpectTree(expression, taken);
    all.elements += agreement.elements;
    all.bounded += agreement.bounded;
    all.apart += agreement.apart;
    if (HasFailure()) return;
  }
  // Most elements have a bound.
  EXPECT_GT(all.bounded, all.elements * 8 / 10) << "of " << all.elements;
  EXPECT_LT(all.apart, all.elements / 50);
}

// Covers rows that are longer than a slice, and pieces of one.
TEST(FusedDefinition, LongRowsAreWhatTheTreeSays) {
  for (uint64_t i = 0; i < 12; ++i) {
    const RandomExpression expression(RunSeed() + 1000 + i, {.depth = 3});
    SCOPED_TRACE(absl::StrCat("seed ", RunSeed(), ": ", expression.text()));
    std::vector<Dims> shapes = {{2, 3001}, {3001}, {2, 1}};
    shapes.resize(static_cast<size_t>(expression.inputs()));
    ExpectTree(expression, shapes);
    if (HasFailure()) return;
  }
}

// The kept elements, which are scaled, by a mask that is computed from the definition of its
// layout alone.
TEST(FusedDefinition, DropoutKeepsWhatPhiloxSays) {
  constexpr int64_t kSeed = 0x1234567890;
  const auto problem =
      MakeProblem(FusedOp(), Specs({{30, 70}, {30, 1}}),
                  {{"expression", std::string("dropout(x0, 0.25) + dropout(x1, 0.5) * 1000")},
                   {"seed", kSeed}});
  std::vector<Memory> inputs;
  for (const TensorSpec& spec : problem->inputs) {
    inputs.emplace_back(spec.bytes());
    for (int64_t i = 0; i < spec.elements(); ++i)
      SetValue(inputs.back().data(), spec.data_type, i, 1);
  }
  const Truth truth = TruthFor(FusedOp(), *problem, inputs);
  const auto kept = [](int64_t place, uint32_t call, double p) {
    const auto words =
        expression::Philox({static_cast<uint32_t>(place / 4), 0, call, 0}, 0x34567890u, 0x12u);
    return words[static_cast<size_t>(place % 4)] >= p * 0x1p32;
  };
  for (int64_t i = 0; i < 2100; ++i) {
    const double x0 = kept(i, 0, 0.25) ? static_cast<float>(1 / 0.75) : 0;
    const double x1 = kept(i / 70, 1, 0.5) ? 2000 : 0;
    ASSERT_NEAR(truth.values[static_cast<size_t>(i)], x0 + x1, 1e-9) << i;
  }
}

// Rows against the definition, within the expression's bounds.
TEST(FusedRows, RandomExpressionsMeetTheDefinition) {
  const Fill fills[] = {Fill::kNormal, Fill::kBroad, Fill::kSpecial, Fill::kWide};
  for (uint64_t i = 0; i < 240; ++i) {
    const RandomExpression expression(
        RunSeed() + 2000 + i, {.depth = 2 + static_cast<int>(i % 5), .inputs = 4, .dropout = true});
    SCOPED_TRACE(absl::StrCat("seed ", RunSeed(), " + ", 2000 + i, ": ", expression.text()));
    std::vector<Dims> shapes[] = {{{37, 5}, {5}, {37, 1}, {1}},
                                  {{3, 2, 65}, {3, 1, 1}, {2, 65}, {3, 2, 65}},
                                  {{4111}, {4111}, {1}, {4111}},
                                  {{2, 1100}, {1, 1100}, {2, 1}, {1100}},
                                  {{1, 9}, {7, 1}, {7, 9}, {9}}};
    std::vector<Dims>& taken = shapes[i % 5];
    taken.resize(static_cast<size_t>(expression.inputs()));
    const auto problem = MakeProblem(
        FusedOp(), Specs(taken, kDataTypes[i % 3]),
        {{"expression", expression.text()}, {"seed", static_cast<int64_t>(RunSeed() * i)}});
    ASSERT_TRUE(problem.ok()) << problem.status();
    std::vector<Memory> inputs;
    for (const TensorSpec& spec : problem->inputs)
      inputs.push_back(FilledInput(spec, fills[i / 5 % 4], absl::StrCat("rows", i, inputs.size())));
    ExpectTruth(FusedOp(), *problem, inputs, TruthFor(FusedOp(), *problem, inputs));
    if (HasFailure()) return;
  }
}

// Single elements of float32: the limit where there is one, NaN where there is none.
TEST(FusedDefinition, SpecialValuesHaveTheirLimits) {
  const double inf = HUGE_VAL;
  const double nan = NAN;
  struct Limits {
    const char* expression;
    double at[3];  // -inf, inf, NaN
  };
  const Limits all[] = {
      {"exp(x0)", {0, inf, nan}},          {"exp2(x0)", {0, inf, nan}},
      {"log(x0)", {nan, inf, nan}},        {"sqrt(x0)", {nan, inf, nan}},
      {"rsqrt(x0)", {nan, 0, nan}},        {"tanh(x0)", {-1, 1, nan}},
      {"erf(x0)", {-1, 1, nan}},           {"sigmoid(x0)", {0, 1, nan}},
      {"relu(x0)", {0, inf, nan}},         {"abs(x0)", {inf, inf, nan}},
      {"gelu(x0)", {0, inf, nan}},         {"gelu_erf(x0)", {0, inf, nan}},
      {"silu(x0)", {0, inf, nan}},         {"softmax(x0)", {nan, nan, nan}},
      {"max(x0, 1)", {1, inf, nan}},       {"max(1, x0)", {1, inf, nan}},
      {"min(x0, 1)", {-inf, 1, nan}},      {"min(1, x0)", {-inf, 1, nan}},
      {"sum(x0)", {-inf, inf, nan}},       {"mean(x0)", {-inf, inf, nan}},
      {"max(x0)", {-inf, inf, nan}},       {"min(x0)", {-inf, inf, nan}},
      {"var(x0)", {nan, nan, nan}},        {"x0 - x0", {nan, nan, nan}},
      {"pow(x0, 3)", {-inf, inf, nan}},    {"pow(x0, -1)", {0, 0, nan}},
      {"pow(x0, 0.5)", {inf, inf, nan}},   {"where(x0 < 0, 1, 2)", {1, 2, 2}},
      {"where(x0 >= 0, 1, 2)", {2, 1, 2}}, {"1 / x0", {0, 0, nan}},
  };
  for (const Limits& limits : all) {
    const auto problem = Fused(limits.expression, {{3, 1}});
    std::vector<Memory> inputs;
    inputs.emplace_back(problem->inputs[0].bytes());
    const double specials[] = {-inf, inf, nan};
    for (int64_t i = 0; i < 3; ++i)
      SetValue(inputs[0].data(), DataType::kFloat32, i, static_cast<float>(specials[i]));
    const Truth truth = TruthFor(FusedOp(), *problem, inputs);
    for (size_t i = 0; i < 3; ++i) {
      const bool same =
          std::isnan(limits.at[i]) ? std::isnan(truth.values[i]) : truth.values[i] == limits.at[i];
      EXPECT_TRUE(same) << limits.expression << " of " << specials[i] << " is " << truth.values[i];
      EXPECT_TRUE(std::isfinite(truth.errors[i].arithmetic)) << limits.expression << " " << i;
    }
  }
}

}  // namespace
}  // namespace warpcall::testing
