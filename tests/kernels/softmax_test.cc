#include "kernels/softmax/softmax.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/kernels/run_row.h"

namespace warpcall {
namespace {

using testing::Memory;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kMax = std::numeric_limits<float>::max();

std::string Refusal(Dims dims, int64_t axis) {
  const auto problem = MakeProblem(SoftmaxOp(), {{DataType::kFloat32, dims}}, {{"axis", axis}});
  EXPECT_EQ(problem.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(problem.status().message());
}

TEST(SoftmaxTest, AxisOutOfRangeIsNamedWithItsLimits) {
  EXPECT_EQ(Refusal({2, 3}, 2), "attribute axis is 2; for rank 2 it must be -2 to 1");
  EXPECT_EQ(Refusal({2, 3}, -3), "attribute axis is -3; for rank 2 it must be -2 to 1");
  EXPECT_EQ(Refusal({5}, 1), "attribute axis is 1; for rank 1 it must be -1 to 0");
}

TEST(SoftmaxTest, ViewCountsWhatLiesAroundTheAxis) {
  const auto problem =
      MakeProblem(SoftmaxOp(), {{DataType::kFloat32, {2, 3, 5, 7}}}, {{"axis", int64_t{-2}}});
  ASSERT_TRUE(problem.ok()) << problem.status();
  const softmax::View view = softmax::ViewOf(*problem);
  EXPECT_EQ(view.outer, 6);
  EXPECT_EQ(view.n, 5);
  EXPECT_EQ(view.inner, 7);
  EXPECT_EQ(view.RowOffset(8), 36);  // row 1 of slab 1
}

// Row lengths around every method of the vectorised rows.
constexpr int64_t kLengths[] = {1, 2, 17, 100, 8192, 8200, 40000};

struct SpecialRow {
  const char* name;
  float first;  // element 0
  float rest;   // the others
  bool is_nan;  // the whole row
};

constexpr SpecialRow kSpecialRows[] = {
    {"NaN first", kNan, 1.0f, true},
    {"infinity first", kInfinity, 1.0f, true},
    {"all infinity", kInfinity, kInfinity, true},
    {"all -infinity", -kInfinity, -kInfinity, true},
    {"NaN among infinities", kNan, kInfinity, true},
    {"infinity among -infinities", kInfinity, -kInfinity, true},
    {"finite among -infinities", 3.0f, -kInfinity, false},
    {"largest among lowest", kMax, -kMax, false},
    {"all lowest", -kMax, -kMax, false},
    {"all largest", kMax, kMax, false},
};

// Puts `special` on an axis of n, in row 1 of 3 and with its first element at position `at`; the
// other rows are ordinary and must not notice.
void CheckSpecialRow(const Implementation& row, const SpecialRow& special, int64_t n,
                     bool strided) {
  const Dims dims = strided ? Dims{n, 3} : Dims{3, n};
  const auto problem =
      MakeProblem(SoftmaxOp(), {{DataType::kFloat32, dims}}, {{"axis", int64_t{strided ? 0 : 1}}});
  ASSERT_TRUE(problem.ok()) << problem.status();
  const auto index = [&](int64_t r, int64_t j) { return strided ? j * 3 + r : r * n + j; };
  for (const int64_t at : {int64_t{0}, n - 1}) {
    std::vector<Memory> inputs;
    inputs.emplace_back(3 * n * sizeof(float));
    auto* const x = static_cast<float*>(inputs[0].data());
    for (int64_t j = 0; j < n; ++j) {
      x[index(0, j)] = x[index(2, j)] = 0.0f;
      x[index(1, j)] = j == at ? special.first : special.rest;
    }
    const auto outputs = RunRow(row, *problem, inputs, 0x42);
    ASSERT_TRUE(outputs.ok()) << outputs.status();
    const auto* const y = static_cast<const float*>((*outputs)[0].data());
    const bool first_wins = special.first > special.rest;
    for (int64_t j = 0; j < n; ++j) {
      const float uniform = 1.0f / static_cast<float>(n);
      ASSERT_NEAR(y[index(0, j)], uniform, 1e-5f * uniform) << j;
      ASSERT_NEAR(y[index(2, j)], uniform, 1e-5f * uniform) << j;
      const float actual = y[index(1, j)];
      if (special.is_nan && !(n == 1 && std::isfinite(special.first))) {
        ASSERT_TRUE(std::isnan(actual)) << j << " is " << actual;
      } else {
        const float expected = !first_wins ? uniform : j == at ? 1.0f : 0.0f;
        ASSERT_NEAR(actual, expected, 1e-5f * expected) << j;
      }
    }
  }
}

TEST(SoftmaxTest, SpecialRowsAreNanThroughoutAndLeaveOthersAlone) {
  for (const Implementation& row : SoftmaxCpuRows()) {
    for (const SpecialRow& special : kSpecialRows) {
      for (const int64_t n : kLengths) {
        for (const bool strided : {false, true}) {
          SCOPED_TRACE(::testing::Message() << row.name << ", " << special.name << ", n " << n
                                            << (strided ? ", strided" : ""));
          CheckSpecialRow(row, special, n, strided);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST(SoftmaxTest, EveryRowSumsToOne) {
  constexpr int64_t kLength = 1000;
  const auto problem = MakeProblem(SoftmaxOp(), {{DataType::kFloat32, {kLength}}}, {});
  ASSERT_TRUE(problem.ok()) << problem.status();
  std::vector<Memory> inputs;
  inputs.emplace_back(kLength * sizeof(float));
  for (int64_t i = 0; i < kLength; ++i) {
    testing::SetValue(inputs[0].data(), DataType::kFloat32, i, static_cast<float>(i % 37) - 18);
  }
  for (const Implementation& row : SoftmaxCpuRows()) {
    const auto outputs = RunRow(row, *problem, inputs, 0xFF);
    ASSERT_TRUE(outputs.ok()) << outputs.status();
    double sum = 0;
    for (int64_t i = 0; i < kLength; ++i) {
      sum += testing::ValueAt((*outputs)[0].data(), DataType::kFloat32, i);
    }
    EXPECT_NEAR(sum, 1.0, 1e-6) << row.name;
  }
}

}  // namespace
}  // namespace warpcall
