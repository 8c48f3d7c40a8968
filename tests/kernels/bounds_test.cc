// Results that Compare accepts and results that it rejects: the truth with the errors of a faulty
// row.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "kernels/check/compare.h"
#include "kernels/gelu/gelu.h"
#include "kernels/identity/identity.h"
#include "kernels/layernorm/layernorm.h"
#include "kernels/matmul/matmul.h"
#include "kernels/rmsnorm/rmsnorm.h"
#include "kernels/softmax/softmax.h"
#include "tests/kernels/run_row.h"
#include "tests/kernels/seed.h"

namespace warpcall {
namespace {

using testing::kInfinity;
using testing::Memory;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// One op's output for inputs of N(0, 1), as the reference row gives it, and the truth.
class Checked {
 public:
  Checked(const Op& op, std::vector<TensorSpec> specs, std::vector<NamedAttribute> attributes = {},
          Fill fill = Fill::kNormal)
      : problem_(*MakeProblem(op, specs, attributes)) {
    for (const TensorSpec& spec : specs)
      inputs_.push_back(testing::FilledInput(spec, fill, std::to_string(inputs_.size())));
    truth_ = TruthOf({op, op.cases(), problem_, testing::OperandsOf(inputs_)}, testing::TestPool());
    const auto kernel = testing::CpuKernels().Find(op.name);
    auto outputs = RunRow(testing::ReferenceOf(**kernel), problem_, inputs_, 0xFF);
    EXPECT_TRUE(outputs.ok()) << outputs.status();
    outputs_ = *std::move(outputs);
  }

  int64_t elements() const { return truth_.spec.elements(); }
  float input(int i, int64_t at) const {
    return testing::ValueAt(inputs_[i].data(), truth_.spec.data_type, at);
  }
  float Get(int64_t i) const {
    return testing::ValueAt(outputs_[0].data(), truth_.spec.data_type, i);
  }
  void Set(int64_t i, float value) {
    testing::SetValue(outputs_[0].data(), truth_.spec.data_type, i, value);
  }
  int64_t Wrong(const Allowance& allowance = {}) const {
    return Compare(truth_, outputs_[0].data(), allowance).wrong;
  }

 private:
  Problem problem_;
  std::vector<Memory> inputs_;
  Truth truth_;
  std::vector<Memory> outputs_;
};

TensorSpec SpecOf(DataType type, Dims dims) { return {.data_type = type, .dims = std::move(dims)}; }

TEST(BoundsTest, WhatTheReferenceRoundsIsRightInEveryType) {
  for (const DataType type : kDataTypes) {
    EXPECT_EQ(Checked(IdentityOp(), {SpecOf(type, {1000})}).Wrong(), 0);
    EXPECT_EQ(Checked(GeluOp(), {SpecOf(type, {1000})}).Wrong(), 0);
    EXPECT_EQ(Checked(SoftmaxOp(), {SpecOf(type, {7, 300})}).Wrong(), 0);
    EXPECT_EQ(Checked(RmsnormOp(), {SpecOf(type, {7, 300}), SpecOf(type, {300})}).Wrong(), 0);
    EXPECT_EQ(Checked(MatmulOp(), {SpecOf(type, {9, 100}), SpecOf(type, {100, 11})}).Wrong(), 0);
  }
}

// 16-bit results have half a unit for their rounding, not one: a neighbour is wrong.
TEST(BoundsTest, ANeighbourOfARounded16BitResultIsWrong) {
  for (const DataType type : {DataType::kFloat16, DataType::kBFloat16}) {
    Checked softmax(SoftmaxOp(), {SpecOf(type, {50, 20})});
    int64_t moved = 0;
    for (int64_t i = 0; i < softmax.elements(); ++i, ++moved) {
      const double unit = 2 * HalfUnit(type, softmax.Get(i));
      softmax.Set(i, static_cast<float>(softmax.Get(i) + unit));
    }
    // All but the few that lay within float32's error of the middle between two neighbours.
    EXPECT_GE(softmax.Wrong(), moved - moved / 50) << DataTypeName(type);
  }
}

// Every other element becomes larger by the share of the one that is lost.
TEST(BoundsTest, ALostElementOfSoftmaxIsSeenUpToAHundredThousand) {
  for (const int64_t n : {1009, 8193, 65537, 100003}) {
    Checked row(SoftmaxOp(), {SpecOf(DataType::kFloat32, {n})});
    double kept = 0;
    for (int64_t j = 0; j < n; ++j) kept += row.Get(j);
    kept -= kept / static_cast<double>(n);  // one of average weight
    for (int64_t j = 0; j < n; ++j) row.Set(j, static_cast<float>(row.Get(j) / kept));
    EXPECT_GE(row.Wrong(), n - n / 100) << n;
  }
}

// rmsnorm scales every other element up by half the share of the lost square; layernorm also moves
// all elements by the share of the lost element.
TEST(BoundsTest, ALostElementOfANormIsSeenUpToAHundredThousand) {
  for (const int64_t n : {1009, 8193, 65537, 100003}) {
    Checked rms(RmsnormOp(), {SpecOf(DataType::kFloat32, {n}), SpecOf(DataType::kFloat32, {n})});
    const double larger = 1 + 2.0 / static_cast<double>(n);  // one of twice the deviation
    for (int64_t j = 0; j < n; ++j) rms.Set(j, static_cast<float>(rms.Get(j) * larger));
    EXPECT_GE(rms.Wrong(), n - n / 100) << n;
    const TensorSpec row = SpecOf(DataType::kFloat32, {n});
    Checked layer(LayernormOp(), {row, row, row});
    for (int64_t j = 0; j < n; ++j) {
      const double weighed = layer.Get(j) - layer.input(2, j);
      const double moved = (weighed + 2.0 / static_cast<double>(n) * layer.input(1, j)) * larger;
      layer.Set(j, static_cast<float>(moved + layer.input(2, j)));
    }
    EXPECT_GE(layer.Wrong(), n / 3) << n;
  }
}

double Flush(double value) {
  return std::fabs(value) < 0x1p-126 ? std::copysign(0.0, value) : value;
}

// layernorm of a row as a library does it that knows no subnormal numbers, and makes no other
// error.
void NormalizeWithoutSubnormals(Checked* rows, int64_t row, int64_t n) {
  const auto x = [&](int64_t j) { return Flush(rows->input(0, row * n + j)); };
  double sum = 0;
  for (int64_t j = 0; j < n; ++j) sum += x(j);
  const double mean = Flush(sum / static_cast<double>(n));
  double squares = 0;
  for (int64_t j = 0; j < n; ++j) {
    const double distance = Flush(x(j) - mean);
    squares += distance * distance;
  }
  const double reciprocal = 1 / std::sqrt(squares / static_cast<double>(n) + 1e-5);
  for (int64_t j = 0; j < n; ++j) {
    const double normalized = Flush(Flush(x(j) - mean) * reciprocal);
    const double product = Flush(normalized * Flush(rows->input(1, j)));
    const double result = Flush(product + Flush(rows->input(2, j)));
    rows->Set(row * n + j, static_cast<float>(result));
  }
}

// The largest of its row, of the first row that has one of 1 or more with a finite result: neither
// rounding nor numbers that are taken as 0 take much of its normalised value.
int64_t FirstLargeElement(const Checked& rows, int64_t n) {
  for (int64_t row = 0;; row += n) {
    int64_t largest = row;
    for (int64_t i = row; i < row + n; ++i)
      if (std::fabs(rows.input(0, i)) > std::fabs(rows.input(0, largest))) largest = i;
    if (std::fabs(rows.input(0, largest)) >= 1 && std::isfinite(rows.Get(largest))) return largest;
  }
}

TEST(BoundsTest, ANormWithoutSubnormalsNeedsItsAllowance) {
  constexpr int64_t kRows = 97;
  const Allowance allowance = AllowanceFor(LayernormOp().cases(), "cudnn_norm", DataType::kFloat32);
  int64_t wrong_without = 0;
  for (const int64_t n : {2, 9, 15, 129, 1025}) {
    const TensorSpec row = SpecOf(DataType::kFloat32, {n});
    Checked rows(LayernormOp(), {SpecOf(DataType::kFloat32, {kRows, n}), row, row}, {},
                 Fill::kWide);
    for (int64_t i = 0; i < kRows; ++i) NormalizeWithoutSubnormals(&rows, i, n);
    EXPECT_EQ(rows.Wrong(allowance), 0) << n;
    wrong_without += rows.Wrong();
    // Scaled to the terms: where they cancel, a fraction of the sum is less than may be off.
    const int64_t at = FirstLargeElement(rows, n);
    const double bias = rows.input(2, at % n);
    const double terms = std::fabs(rows.Get(at) - bias) + std::fabs(bias);
    const double off = std::copysign(terms * 0x1p-10 + 0x1p-110, rows.Get(at));
    rows.Set(at, static_cast<float>(rows.Get(at) - off));
    EXPECT_EQ(rows.Wrong(allowance), 1) << n;
  }
  EXPECT_GT(wrong_without, 0);
}

// The last of 32 splits of a sum.
TEST(BoundsTest, ALostSplitOfALongSumIsSeen) {
  constexpr int64_t kTerms = 20011;
  for (const DataType type : kDataTypes) {
    Checked product(MatmulOp(), {SpecOf(type, {1, kTerms}), SpecOf(type, {kTerms, 3})});
    for (int64_t j = 0; j < 3; ++j) {
      double lost = 0;
      for (int64_t p = kTerms - kTerms / 32; p < kTerms; ++p)
        lost += static_cast<double>(product.input(0, p)) * product.input(1, p * 3 + j);
      // A sum of 625 terms of either sign is near 0 now and then.
      product.Set(j, static_cast<float>(product.Get(j) - (std::fabs(lost) > 5 ? lost : 5)));
    }
    EXPECT_EQ(product.Wrong(), 3) << DataTypeName(type);
  }
}

// The last 16 terms of a sum of 1024: one step in k of a tile.
TEST(BoundsTest, ALostStepOfASumIsSeen) {
  constexpr int64_t kTerms = 1024;
  constexpr int64_t kColumns = 64;
  Checked product(MatmulOp(), {SpecOf(DataType::kFloat32, {1, kTerms}),
                               SpecOf(DataType::kFloat32, {kTerms, kColumns})});
  for (int64_t j = 0; j < kColumns; ++j) {
    double lost = 0;
    for (int64_t p = kTerms - 16; p < kTerms; ++p)
      lost += static_cast<double>(product.input(0, p)) * product.input(1, p * kColumns + j);
    product.Set(j, static_cast<float>(product.Get(j) - lost));
  }
  EXPECT_GE(product.Wrong(), kColumns - 4);
}

TEST(BoundsTest, TwoUnitsInTheLastPlaceOfALargeGeluAreWrong) {
  const float x = 9;
  Operands inputs;
  inputs.inputs = {&x};
  const Problem problem = *MakeProblem(GeluOp(), {SpecOf(DataType::kFloat32, {1})}, {});
  const Truth truth = TruthOf({GeluOp(), GeluOp().cases(), problem, inputs}, testing::TestPool());
  const float off = x + 2 * 0x1p-20f;
  EXPECT_EQ(Compare(truth, &off).wrong, 1);
  EXPECT_EQ(Compare(truth, &x).wrong, 0);
}

struct Element {
  DataType type;
  float actual;
  double truth;
  double arithmetic;
};

int64_t WrongOf(const Element& element, const Allowance& allowance = {}) {
  Memory memory(ElementBytes(element.type));
  testing::SetValue(memory.data(), element.type, 0, element.actual);
  const Truth one{.spec = SpecOf(element.type, {1}),
                  .values = {element.truth},
                  .errors = {{.arithmetic = element.arithmetic, .subnormal_inputs = 1}}};
  return Compare(one, memory.data(), allowance).wrong;
}

// An infinite error would take any result, NaN included. Sums and products of infinities may need
// one, elements that are computed for themselves never do.
TEST(BoundsTest, InfiniteInputsHaveNoInfiniteErrors) {
  int problems = 0;
  for (const Kernel& kernel : testing::CpuKernels().kernels()) {
    const Op& op = *kernel.op;
    if (op.name != std::string("identity") && op.name != std::string("gelu") &&
        op.name != std::string("softmax"))
      continue;
    for (const Case& known : op.cases().cases) {
      if (known.fill != Fill::kSpecial || known.shapes.empty()) continue;
      std::vector<TensorSpec> specs;
      for (const Dims& dims : known.shapes) specs.push_back({DataType::kFloat32, dims});
      const auto problem = MakeProblem(op, specs, known.attributes);
      ASSERT_TRUE(problem.ok()) << problem.status();
      if (problem->outputs[0].elements() > 100'000) continue;
      std::vector<Memory> inputs;
      for (const TensorSpec& spec : specs)
        inputs.push_back(testing::FilledInput(spec, known.fill, known.name));
      const Truth truth =
          TruthOf({op, op.cases(), *problem, testing::OperandsOf(inputs)}, testing::TestPool());
      for (size_t i = 0; i < truth.errors.size(); ++i)
        ASSERT_FALSE(std::isinf(truth.errors[i].arithmetic)) << op.name << " " << known.name << i;
      ++problems;
    }
  }
  EXPECT_GT(problems, 10);
}

TEST(CompareTest, SpecialValuesStandWhereTheTruthHasThem) {
  for (const DataType type : kDataTypes) {
    EXPECT_EQ(WrongOf({type, kNan, kNan, 1}), 0);
    EXPECT_EQ(WrongOf({type, 1, kNan, 1}), 1);
    EXPECT_EQ(WrongOf({type, kNan, 1, 100}), 1);
    EXPECT_EQ(WrongOf({type, kInfinity, kInfinity, 0}), 0);
    EXPECT_EQ(WrongOf({type, -kInfinity, kInfinity, 0}), 1);
    EXPECT_EQ(WrongOf({type, kInfinity, 1, 100}), 1);
    EXPECT_EQ(WrongOf({type, kInfinity, 1e60, 0}), 0);
    EXPECT_EQ(WrongOf({type, -kInfinity, 1e60, 0}), 1);
    EXPECT_EQ(WrongOf({type, 1, 1e60, 0}), 1);
  }
  // Half a unit beyond the largest float16, 65504.
  EXPECT_EQ(WrongOf({DataType::kFloat16, kInfinity, 65519.9, 0}), 1);
  EXPECT_EQ(WrongOf({DataType::kFloat16, kInfinity, 65519.9, 0.1}), 0);
  EXPECT_EQ(WrongOf({DataType::kFloat16, kInfinity, 65520, 0}), 0);
  EXPECT_EQ(WrongOf({DataType::kFloat16, 65504, 65519.9, 0}), 0);
  // Either end, where the arithmetic reaches it.
  EXPECT_EQ(WrongOf({DataType::kFloat16, -kInfinity, 1, 65521}), 0);
  EXPECT_EQ(WrongOf({DataType::kFloat16, -kInfinity, 1, 65520}), 1);
}

TEST(CompareTest, AnythingIsRightWhereTheArithmeticMayDoAnything) {
  for (const DataType type : kDataTypes) {
    for (const double truth : {1.0, 1e60, static_cast<double>(kNan)}) {
      for (const float actual : {2.0f, kNan, kInfinity, -kInfinity})
        EXPECT_EQ(WrongOf({type, actual, truth, HUGE_VAL}), 0);
      EXPECT_EQ(WrongOf({type, -3, truth, 1e-3}), 1);
    }
  }
}

TEST(CompareTest, TheSignOfZeroCountsWhereNothingIsComputed) {
  EXPECT_EQ(WrongOf({DataType::kFloat32, 0.0f, -0.0, 0}), 1);
  EXPECT_EQ(WrongOf({DataType::kFloat32, -0.0f, -0.0, 0}), 0);
  EXPECT_EQ(WrongOf({DataType::kFloat32, 0.0f, -0.0, 1e-34}), 0);
}

TEST(CompareTest, HalfAUnitComesOnTopOfTheArithmetic) {
  EXPECT_EQ(HalfUnit(DataType::kFloat32, 1), 0x1p-24);
  EXPECT_EQ(HalfUnit(DataType::kFloat16, -3), 0x1p-10);
  EXPECT_EQ(HalfUnit(DataType::kBFloat16, 0.75), 0x1p-9);
  EXPECT_EQ(HalfUnit(DataType::kFloat16, 0), 0x1p-25);
  EXPECT_EQ(HalfUnit(DataType::kFloat16, 1e-30), 0x1p-25);
  EXPECT_EQ(HalfUnit(DataType::kBFloat16, 0), 0x1p-134);
  EXPECT_EQ(WrongOf({DataType::kFloat16, 1, 1 + 0x1p-11, 0}), 0);
  EXPECT_EQ(WrongOf({DataType::kFloat16, 1, 1 + 0x1.01p-11, 0}), 1);
  EXPECT_EQ(WrongOf({DataType::kFloat16, 1, 1 + 0x1.01p-11, 0x1p-19}), 0);
}

TEST(CompareTest, AnAllowanceGivesWhatItNamesAndNoMore) {
  const float two_units = 1 + 0x1p-9f;
  EXPECT_EQ(WrongOf({DataType::kFloat16, two_units, 1, 0}), 1);
  EXPECT_EQ(WrongOf({DataType::kFloat16, 1 + 0x1p-10f, 1, 0}, {.roundings = 2}), 0);
  EXPECT_EQ(WrongOf({DataType::kFloat16, two_units, 1, 0}, {.roundings = 2}), 1);
  // Among subnormals a rounding is absolute.
  EXPECT_EQ(WrongOf({DataType::kFloat16, 0x1p-24f, 0x0.4p-24, 0}), 1);
  EXPECT_EQ(WrongOf({DataType::kFloat16, 0x1p-24f, 0x0.4p-24, 0}, {.roundings = 2}), 0);
  EXPECT_EQ(WrongOf({DataType::kFloat16, 0x1p-23f, 0x0.4p-24, 0}, {.roundings = 2}), 1);
  EXPECT_EQ(WrongOf({DataType::kFloat32, 0, 0x1p-126, 0}, {.zero_below = 0x1p-125}), 0);
  EXPECT_EQ(WrongOf({DataType::kFloat32, 0, 0x1p-125, 0}, {.zero_below = 0x1p-125}), 1);
  EXPECT_EQ(WrongOf({DataType::kFloat32, 0x1p-127f, 0x1p-126, 0}, {.zero_below = 0x1p-125}), 1);
  EXPECT_EQ(WrongOf({DataType::kFloat32, 2, 1, 0.25}, {.arithmetic = 4}), 0);
  EXPECT_EQ(WrongOf({DataType::kFloat32, 2, 1, 0.25}, {.arithmetic = 3}), 1);
  EXPECT_EQ(WrongOf({DataType::kFloat32, 2, 1, 0}, {.flushes_subnormal_inputs = true}), 0);
  EXPECT_EQ(WrongOf({DataType::kFloat32, 2, 1, 0}), 1);
}

}  // namespace
}  // namespace warpcall
