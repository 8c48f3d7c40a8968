#include "kernels/softmax/softmax.h"

#include <gtest/gtest.h>

#include <string>

namespace warpcall {
namespace {

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

}  // namespace
}  // namespace warpcall
