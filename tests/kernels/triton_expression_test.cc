#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/triton/expression.h"

namespace warpcall::triton {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kMost = std::numeric_limits<int64_t>::max();

const std::vector<std::string>& Names() {
  static const auto& names = *new std::vector<std::string>{"m", "n", "TILE_M"};
  return names;
}

int64_t ValueOf(absl::string_view text, int64_t m = 0, int64_t n = 0) {
  const auto expression = Expression::Parse(text, Names());
  EXPECT_TRUE(expression.ok()) << expression.status();
  if (!expression.ok()) return -1;
  return expression->Evaluate({{"n", n}, {"m", m}, {"TILE_M", 64}});
}

TEST(ExpressionTest, ComputesAsArithmeticDoes) {
  EXPECT_EQ(ValueOf("7"), 7);
  EXPECT_EQ(ValueOf(" m ", 5), 5);
  EXPECT_EQ(ValueOf("2 + 3 * 4"), 14);
  EXPECT_EQ(ValueOf("(2 + 3) * 4"), 20);
  EXPECT_EQ(ValueOf("10 - 4 - 3"), 3);
  EXPECT_EQ(ValueOf("m - n", 3, 5), -2);
  EXPECT_EQ(ValueOf("TILE_M*m", 3), 192);
}

TEST(ExpressionTest, DividesUpwards) {
  EXPECT_EQ(ValueOf("ceil(m / TILE_M)", 0), 0);
  EXPECT_EQ(ValueOf("ceil(m / TILE_M)", 1), 1);
  EXPECT_EQ(ValueOf("ceil(m / TILE_M)", 64), 1);
  EXPECT_EQ(ValueOf("ceil(m / TILE_M)", 65), 2);
  EXPECT_EQ(ValueOf("ceil(m / TILE_M) * ceil(n + 1 / 2)", 65, 4), 6);
  EXPECT_EQ(ValueOf("ceil(m / n)", 5, 0), 0);
  EXPECT_EQ(ValueOf("ceil(m / TILE_M)", kMost), kMost / 64 + 1);
}

TEST(ExpressionTest, StopsAtTheEndsOfItsRange) {
  EXPECT_EQ(ValueOf("m * n", kMost, 2), kMost);
  EXPECT_EQ(ValueOf("m + n", kMost, 1), kMost);
  EXPECT_EQ(ValueOf("0 - m - n", kMost, kMost), -kMost);
  EXPECT_EQ(ValueOf("(0 - m) * n", kMost, 3), -kMost);
  EXPECT_EQ(ValueOf("1 - (0 - m)", kMost), kMost);
}

TEST(ExpressionTest, SaysWhereItIsWrong) {
  const auto wrong = [](absl::string_view text) {
    const auto expression = Expression::Parse(text, Names());
    EXPECT_TRUE(absl::IsInvalidArgument(expression.status())) << text;
    return std::string(expression.status().message());
  };
  EXPECT_EQ(wrong("m + k"),
            "expression \"m + k\": expected a number or a known name at character 5");
  EXPECT_EQ(wrong("(m"), "expression \"(m\": expected \")\" at character 3");
  EXPECT_EQ(wrong("m n"), "expression \"m n\": expected an operator at character 3");
  for (const char* const text :
       {"", "m +", "* m", "m)", "ceil(m)", "ceil m / n", "ceil(m / n", "m / n", "-m", "1.5",
        "9223372036854775808", "m; n", "ceilm"})
    wrong(text);
}

TEST(ExpressionTest, IsLimited) {
  const std::string deep(Expression::kDepthMax, '(');
  const std::string closing(Expression::kDepthMax, ')');
  EXPECT_EQ(ValueOf(absl::StrCat(deep, "1", closing)), 1);
  const auto deeper = Expression::Parse(absl::StrCat("(", deep, "1", closing, ")"), Names());
  EXPECT_THAT(std::string(deeper.status().message()), HasSubstr("at most 16 parentheses"));
  const auto long_one = Expression::Parse(std::string(257, '1'), Names());
  EXPECT_THAT(std::string(long_one.status().message()),
              HasSubstr("has 257 characters; the limit is 256"));
}

}  // namespace
}  // namespace warpcall::triton
