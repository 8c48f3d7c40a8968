// NaN, infinity, zeros and every other pattern: what they become in every row of every device.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/check/fill.h"
#include "kernels/gelu/gelu.h"
#include "kernels/identity/identity.h"
#include "kernels/softmax/softmax.h"
#include "tests/kernels/rows.h"
#include "tests/kernels/seed.h"
#include "tests/kernels/variant_rows.h"

namespace warpcall {
namespace {

using testing::Memory;
using testing::TestedRow;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
// Finite, and not what any element here is.
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

TEST_P(SpecialValuesTest, GeluHasLimitsAndKeepsNan) {
  const DataType type = GetParam();
  const float values[] = {kInfinity,       -kInfinity,      kNan, 0.0f, -0.0f,
                          LargestOf(type), -LargestOf(type)};
  const float expected[] = {kInfinity, 0, kNan, 0, 0, LargestOf(type), 0};
  // In the last vector, which is not whole, in whole ones and in one that another block has.
  for (const int64_t count : {7, 64, 5000}) {
    std::vector<Memory> inputs;
    inputs.emplace_back(static_cast<size_t>(count) * ElementBytes(type));
    for (int64_t i = 0; i < count; ++i) testing::SetValue(inputs[0].data(), type, i, values[i % 7]);
    for (const char* const approximate : {"tanh", "none"}) {
      const auto problem =
          MakeProblem(GeluOp(), {{type, {count}}}, {{"approximate", std::string(approximate)}});
      ASSERT_TRUE(problem.ok()) << problem.status();
      for (const TestedRow& row : testing::TestedRows(GeluOp())) {
        if (!Supports(row, *problem).ok()) continue;
        const auto outputs = testing::RunTested(row, *problem, inputs, kPoison);
        ASSERT_TRUE(outputs.ok()) << row.name << ": " << outputs.status();
        for (int64_t i = 0; i < count; ++i) {
          const float y = testing::ValueAt((*outputs)[0].data(), type, i);
          const float e = expected[i % 7];
          // An approximate reciprocal of 1 leaves the largest number its neighbour.
          const bool right = y == e || std::fabs(y - e) <= 0x1p-23f * std::fabs(e);
          ASSERT_TRUE(right || (std::isnan(y) && std::isnan(e)))
              << row.name << " " << approximate << ": gelu(" << values[i % 7] << ") is " << y;
        }
      }
    }
  }
}

struct SpecialRow {
  const char* name;
  float first;  // element 0
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

// Equal to the truth but for its rounding, and what 2 x 10^5 equal terms cost a sum.
void ExpectNear(float actual, float expected, DataType type) {
  const double unit = type == DataType::kFloat32   ? 1e-5
                      : type == DataType::kFloat16 ? 0x1p-9
                                                   : 0x1p-6;
  const double least = type == DataType::kFloat16 ? 0x1p-24 : 0;
  ASSERT_NEAR(actual, expected, unit * expected + least);
}

void CheckSpecialRow(const TestedRow& row, const Between& between, const SpecialRow& special,
                     DataType type) {
  const int64_t n = between.n;
  const auto problem = MakeProblem(SoftmaxOp(), {{type, between.dims()}},
                                   {{"axis", int64_t{between.strided ? 0 : 1}}});
  ASSERT_TRUE(problem.ok()) << problem.status();
  if (!Supports(row, *problem).ok()) return;
  const float uniform = 1.0f / static_cast<float>(n);
  const bool first_wins = special.first > special.rest;
  for (const int64_t at : {int64_t{0}, n - 1}) {
    std::vector<Memory> inputs;
    inputs.emplace_back(problem->inputs[0].bytes());
    void* const x = inputs[0].data();
    for (int64_t j = 0; j < n; ++j) {
      testing::SetValue(x, type, between.Index(0, j), 0);
      testing::SetValue(x, type, between.Index(1, j), j == at ? special.first : special.rest);
      testing::SetValue(x, type, between.Index(2, j), 0);
    }
    const auto outputs = testing::RunTested(row, *problem, inputs, kPoison);
    ASSERT_TRUE(outputs.ok()) << outputs.status();
    const void* const y = (*outputs)[0].data();
    for (int64_t j = 0; j < n; ++j) {
      ASSERT_NO_FATAL_FAILURE(
          ExpectNear(testing::ValueAt(y, type, between.Index(0, j)), uniform, type));
      ASSERT_NO_FATAL_FAILURE(
          ExpectNear(testing::ValueAt(y, type, between.Index(2, j)), uniform, type));
      const float actual = testing::ValueAt(y, type, between.Index(1, j));
      if (special.is_nan && !(n == 1 && std::isfinite(special.first))) {
        ASSERT_TRUE(std::isnan(actual)) << j << " is " << actual;
      } else {
        const float expected = !first_wins ? uniform : j == at ? 1.0f : 0.0f;
        ASSERT_NO_FATAL_FAILURE(ExpectNear(actual, expected, type)) << j;
      }
    }
  }
}

// Lengths around every method of the CPU's rows and of the GPU's.
TEST_P(SpecialValuesTest, SoftmaxRowsAreNanThroughoutAndLeaveOthersAlone) {
  if (testing::TestElementsMax() > 0)
    GTEST_SKIP() << "for a tool that watches memory these are conformance's launches again";
  for (const TestedRow& row : testing::TestedRows(SoftmaxOp())) {
    for (const SpecialRow& special : SpecialRows(GetParam())) {
      for (const int64_t n : {1, 2, 17, 130, 1000, 2051, 8200, 33000}) {
        for (const bool strided : {false, true}) {
          if (strided && n > 8192) continue;
          SCOPED_TRACE(
              absl::StrCat(row.name, ", ", special.name, ", n ", n, strided ? ", strided" : ""));
          CheckSpecialRow(row, {n, strided}, special, GetParam());
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, SpecialValuesTest, ::testing::ValuesIn(kDataTypes),
                         [](const auto& type) { return std::string(DataTypeName(type.param)); });

}  // namespace
}  // namespace warpcall
