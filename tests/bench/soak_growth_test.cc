#include "tests/bench/soak_growth.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace warpcall::bench {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(BlockMinima, IgnoresWhatOneValueHasMoreAndDropsTheRest) {
  EXPECT_THAT(BlockMinima({5, 70, 6, 7, 8, 7, 1}, 3), ElementsAre(5, 7));
  EXPECT_THAT(BlockMinima({5, 6}, 3), IsEmpty());
}

TEST(FitSlope, OfPointsOnALineIsExact) {
  const std::optional<Slope> slope = FitSlope({0, 1, 2, 5}, {3, 5, 7, 13});
  ASSERT_TRUE(slope.has_value());
  EXPECT_DOUBLE_EQ(slope->value, 2);
  EXPECT_NEAR(slope->error, 0, 1e-12);
}

// By hand: means 2 and 3, xx = 2, xy = 2, residuals 0.5, -1, 0.5 of value 1: their squares' sum 1.5
// over one degree of freedom.
TEST(FitSlope, HasTheStandardErrorOfItsResiduals) {
  const std::optional<Slope> slope = FitSlope({1, 2, 3}, {2.5, 2, 4.5});
  ASSERT_TRUE(slope.has_value());
  EXPECT_DOUBLE_EQ(slope->value, 1);
  EXPECT_NEAR(slope->error, std::sqrt(1.5 / 2), 1e-12);
}

TEST(FitSlope, NeedsThreePointsSideBySide) {
  EXPECT_FALSE(FitSlope({}, {}).has_value());
  EXPECT_FALSE(FitSlope({1, 2}, {1, 2}).has_value());
  EXPECT_FALSE(FitSlope({1, 1, 1}, {1, 2, 3}).has_value());
}

TEST(JudgeGrowth, AllowsTwoStandardErrors) {
  EXPECT_EQ(JudgeGrowth({20, 6}, 32), Growth::kFlat);
  EXPECT_EQ(JudgeGrowth({20, 6.1}, 32), Growth::kUndecided);
  EXPECT_EQ(JudgeGrowth({44, 6}, 32), Growth::kUndecided);
  EXPECT_EQ(JudgeGrowth({44, 5.9}, 32), Growth::kGrows);
  EXPECT_EQ(JudgeGrowth({-500, 10}, 32), Growth::kFlat);
}

}  // namespace
}  // namespace warpcall::bench
