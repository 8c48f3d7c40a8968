#include "kernels/softmax/softmax.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/kernels/run_row.h"

namespace warpcall {
namespace {

using testing::Memory;

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
