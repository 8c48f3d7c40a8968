// NaN, infinity, zeros and every other pattern: their results in every row of every device.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/check/compare.h"
#include "kernels/check/fill.h"
#include "kernels/identity/identity.h"
#include "kernels/linear/linear.h"
#include "kernels/matmul/matmul.h"
#include "kernels/softmax/softmax.h"
#include "tests/kernels/rows.h"
#include "tests/kernels/seed.h"
#include "tests/kernels/variant_rows.h"

namespace warpcall {
namespace {

using testing::kInfinity;
using testing::Memory;
using testing::TestedRow;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
// Finite, and different from every element here.
constexpr uint8_t kPoison = 0x42;

float LargestOf(DataType type) {
  switch (type) {
    case DataType::kFloat16:
      return 65504;
    case DataType::kBFloat16:
      return 0x1.FEp127f;
    case DataType::kFloat32:
      break;
  }
  return std::numeric_limits<float>::max();
}

class SpecialValuesTest : public ::testing::TestWithParam<DataType> {};

// NaN of both kinds with all their bits, too.
TEST_P(SpecialValuesTest, IdentityKeepsEveryBit) {
  const auto problem = MakeProblem(IdentityOp(), {{GetParam(), {4 * 65536}}}, {});
  ASSERT_TRUE(problem.ok()) << problem.status();
  std::vector<Memory> inputs;
  inputs.push_back(testing::FilledInput(problem->inputs[0], Fill::kPatterns, "identity"));
  if (GetParam() == DataType::kFloat32) {  // signalling NaN lie between the steps of the fill
    auto* const bits = static_cast<uint32_t*>(inputs[0].data());
    for (uint32_t i = 0; i < 1000; ++i) bits[i] = (i % 2 << 31) | (0x7F800001u + i * 4001);
    bits[1000] = 0x80000000u;  // and so does -0
  }
  for (const TestedRow& row : testing::TestedRows(IdentityOp())) {
    if (!Supports(row, *problem).ok()) continue;
    const auto outputs = testing::RunTested(row, *problem, inputs, kPoison);
    ASSERT_TRUE(outputs.ok()) << row.name << ": " << outputs.status();
    EXPECT_EQ(std::memcmp((*outputs)[0].data(), inputs[0].data(), inputs[0].bytes()), 0)
        << row.name;
  }
}

struct SpecialRow {
  const char* name;
  float first;  // one element, the first or the last
  float rest;   // the others
  bool is_nan;  // the whole row
};

std::vector<SpecialRow> SpecialRows(DataType type) {
  const float largest = LargestOf(type);
  return {{"NaN first", kNan, 1.0f, true},
          {"infinity first", kInfinity, 1.0f, true},
          {"all infinity", kInfinity, kInfinity, true},
          {"all -infinity", -kInfinity, -kInfinity, true},
          {"NaN among infinities", kNan, kInfinity, true},
          {"infinity among -infinities", kInfinity, -kInfinity, true},
          {"finite among -infinities", 3.0f, -kInfinity, false},
          {"largest among lowest", largest, -largest, false},
          {"all lowest", -largest, -largest, false},
          {"all largest", largest, largest, false}};
}

// A row of softmax of n elements between two ordinary ones.
struct Between {
  int64_t n;
  bool strided;

  int64_t Index(int64_t row, int64_t j) const { return strided ? j * 3 + row : row * n + j; }
  Dims dims() const { return strided ? Dims{n, 3} : Dims{3, n}; }
};

// Lengths around every method of the CPU's rows and of the GPU's.
TEST_P(SpecialValuesTest, SoftmaxRowsAreNanThroughoutAndLeaveOthersAlone) {
  if (testing::TestElementsMax() > 0)
    GTEST_SKIP() << "for a tool that watches memory these are conformance's launches again";
  for (const int64_t n : {1, 2, 17, 130, 1000, 2051, 8200, 33000}) {
    for (const bool strided : {false, true}) {
      if (strided && n > 8192) continue;
      const Between between = {n, strided};
      const Problem problem = *MakeProblem(SoftmaxOp(), {{GetParam(), between.dims()}},
                                           {{"axis", int64_t{strided ? 0 : 1}}});
      for (const SpecialRow& special : SpecialRows(GetParam())) {
        for (const int64_t at : {int64_t{0}, n - 1}) {
          SCOPED_TRACE(absl::StrCat(special.name, " at ", at));
          std::vector<Memory> inputs;
          inputs.emplace_back(problem.inputs[0].bytes());
          inputs[0].Poison(0);
          for (int64_t j = 0; j < n; ++j)
            testing::SetValue(inputs[0].data(), GetParam(), between.Index(1, j),
                              j == at ? special.first : special.rest);
          const Truth truth = testing::TruthFor(SoftmaxOp(), problem, inputs);
          const bool is_nan = special.is_nan && !(n == 1 && std::isfinite(special.first));
          for (int64_t j = 0; j < n; ++j)
            ASSERT_EQ(std::isnan(truth.values[static_cast<size_t>(between.Index(1, j))]), is_nan);
          ExpectTruth(SoftmaxOp(), problem, inputs, truth);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

// A sum with one infinite or NaN term has no bound of its own, so conformance passes over it.
float LinearOf(const std::string& activation, float sum) {
  if (activation == "none" || std::isnan(sum) || sum > 0) return sum;
  return 0;  // for -infinity, and sums not above 0 here
}

// Column j of every row sums up to kTerms[j % 5]: by its weight, or by its bias. The sizes make
// tiled rows take vectors and elements.
TEST_P(SpecialValuesTest, LinearKeepsNanAndInfinityAsItsActivationHasThem) {
  constexpr float kTerms[] = {kInfinity, -kInfinity, kNan, 0, 64};
  const auto terms_of = [&](int64_t i) { return kTerms[i % 5]; };
  constexpr float kNear = 1e-3f;  // relative to 64
  constexpr int64_t kRows = 70;
  constexpr int64_t kColumns = 72;
  for (const int64_t k : {1, 5, 40}) {
    for (const bool by_bias : {false, true}) {
      for (const char* const activation : {"none", "relu", "gelu", "gelu_erf"}) {
        const Problem problem = *MakeProblem(
            LinearOp(),
            {{GetParam(), {kRows, k}}, {GetParam(), {kColumns, k}}, {GetParam(), {kColumns}}},
            {{"activation", std::string(activation)}});
        std::vector<Memory> inputs;
        for (const TensorSpec& spec : problem.inputs) inputs.emplace_back(spec.bytes()).Poison(0);
        for (int64_t i = 0; i < kRows * k; ++i)
          testing::SetValue(inputs[0].data(), GetParam(), i, 1);
        for (int64_t j = 0; j < kColumns; ++j)
          testing::SetValue(inputs[by_bias ? 2 : 1].data(), GetParam(), by_bias ? j : j * k + k / 2,
                            terms_of(j));
        for (const TestedRow& row : testing::TestedRows(LinearOp())) {
          if (!Supports(row, problem).ok()) continue;
          SCOPED_TRACE(
              absl::StrCat(row.name, " ", activation, " k ", k, by_bias ? " by bias" : ""));
          const auto outputs = testing::RunTested(row, problem, inputs, kPoison);
          ASSERT_TRUE(outputs.ok()) << outputs.status();
          for (int64_t i = 0; i < kRows * kColumns; ++i) {
            const float got = testing::ValueAt((*outputs)[0].data(), GetParam(), i);
            const float expected = LinearOf(activation, terms_of(i % kColumns));
            ASSERT_TRUE(got == expected || std::fabs(got - expected) < kNear ||
                        (std::isnan(got) && std::isnan(expected)))
                << got << " for " << expected << " at " << i;
          }
        }
      }
    }
  }
}

// Products of subnormal numbers that are usual numbers, by whatever "auto" takes on this machine.
TEST_P(SpecialValuesTest, AutoMultipliesSubnormalNumbers) {
  const DeviceProperties device = testing::TestDeviceProperties();
  for (const Op* const op : {&MatmulOp(), &LinearOp()}) {
    const bool has_bias = op == &LinearOp();
    for (const int64_t m : {1, 5, 24, 70}) {
      for (const int64_t n : {1, 40, 72}) {
        constexpr int64_t kTerms = 300;
        std::vector<TensorSpec> specs = {{GetParam(), {m, kTerms}}, {GetParam(), {kTerms, n}}};
        if (has_bias)
          specs = {{GetParam(), {m, kTerms}}, {GetParam(), {n, kTerms}}, {GetParam(), {n}}};
        const Problem problem = *MakeProblem(*op, specs, {});
        std::vector<Memory> inputs;
        for (const Fill fill : {Fill::kSubnormal, Fill::kLarge, Fill::kSubnormal})
          if (inputs.size() < specs.size())
            inputs.push_back(testing::FilledInput(specs[inputs.size()], fill, op->name));
        const Kernel& kernel = **testing::CpuKernels().Find(op->name);
        const auto row = testing::CpuKernels().Select(kernel, "auto", problem, device);
        ASSERT_TRUE(row.ok()) << row.status();
        SCOPED_TRACE(absl::StrCat((*row)->implementation.name, " ", ToString(specs[0]), " by ",
                                  ToString(specs[1])));
        const auto outputs = testing::RunRow((*row)->implementation, problem, inputs, kPoison);
        ASSERT_TRUE(outputs.ok()) << outputs.status();
        const Disagreement found =
            Compare(testing::TruthFor(*op, problem, inputs), (*outputs)[0].data(), {});
        EXPECT_EQ(found.wrong, 0) << found.text;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, SpecialValuesTest, ::testing::ValuesIn(kDataTypes),
                         [](const auto& type) { return std::string(DataTypeName(type.param)); });

}  // namespace
}  // namespace warpcall
