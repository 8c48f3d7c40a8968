#include "kernels/manifest/integer_expression.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "absl/strings/str_cat.h"

namespace warpcall::manifest {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();

bool IsName(absl::string_view name) {
  return name == "m" || name == "n" || name == "TILE_M" || name == "x.rank" ||
         name == "x.shape[-1]";
}

absl::StatusOr<int64_t> Evaluate(const absl::StatusOr<IntegerExpression>& expression, int64_t m,
                                 int64_t n) {
  if (!expression.ok()) return expression.status();
  return expression->Evaluate([&](absl::string_view name) -> absl::StatusOr<int64_t> {
    if (name == "m") return m;
    if (name == "n") return n;
    if (name == "TILE_M") return 64;
    if (name == "x.shape[-1]") return 7;
    return absl::InvalidArgumentError(absl::StrCat(name, " has no value"));
  });
}

int64_t ValueOf(absl::string_view text, int64_t m = 0, int64_t n = 0) {
  const auto value = Evaluate(IntegerExpression::Parse(text, IsName), m, n);
  EXPECT_TRUE(value.ok()) << value.status();
  return value.value_or(-1);
}

bool Holds(absl::string_view text, int64_t m = 0, int64_t n = 0) {
  const auto value = Evaluate(IntegerExpression::ParseCondition(text, IsName), m, n);
  EXPECT_TRUE(value.ok()) << value.status();
  return value.value_or(0) == 1;
}

// The message of the refusal, by the parser or at the evaluation.
std::string Wrong(absl::string_view text, int64_t m = 0, int64_t n = 0) {
  const auto value = Evaluate(IntegerExpression::Parse(text, IsName), m, n);
  EXPECT_TRUE(absl::IsInvalidArgument(value.status())) << text << value.status();
  return std::string(value.status().message());
}

TEST(IntegerExpressionTest, ComputesAsArithmeticDoes) {
  EXPECT_EQ(ValueOf("7"), 7);
  EXPECT_EQ(ValueOf(" m ", 5), 5);
  EXPECT_EQ(ValueOf("2 + 3 * 4"), 14);
  EXPECT_EQ(ValueOf("(2 + 3) * 4"), 20);
  EXPECT_EQ(ValueOf("10 - 4 - 3"), 3);
  EXPECT_EQ(ValueOf("100 / 7 / 2"), 7);
  EXPECT_EQ(ValueOf("m - n", 3, 5), -2);
  EXPECT_EQ(ValueOf("TILE_M*m", 3), 192);
  EXPECT_EQ(ValueOf("min(m, n, 4)", 5, 9), 4);
  EXPECT_EQ(ValueOf("max(m, n)", 5, 9), 9);
  EXPECT_EQ(ValueOf("max(m)", 5), 5);
  EXPECT_EQ(ValueOf("x.shape[ - 1 ] + 1"), 8);
}

TEST(IntegerExpressionTest, DividesDownwardsAndCeilUpwards) {
  for (const int64_t m : {-130, -128, -127, -1, 0, 1, 63, 64, 65, 128}) {
    const int64_t down = m >= 0 ? m / 64 : -((-m + 63) / 64);
    EXPECT_EQ(ValueOf("m / 64", m), down) << m;
    EXPECT_EQ(ValueOf("m % 64", m), m - 64 * down) << m;
    EXPECT_EQ(ValueOf("ceil(m / TILE_M)", m), m == 64 * down ? down : down + 1) << m;
  }
  EXPECT_EQ(ValueOf("5 % (0 - 3)"), -1);
  EXPECT_EQ(ValueOf("ceil((m + 1) / n) * 2", 64, 4), 34);
  EXPECT_EQ(ValueOf("ceil(m * 4 / TILE_M)", 17), 2);
  EXPECT_EQ(ValueOf("ceil(m / TILE_M)", kMost), kMost / 64 + 1);
  EXPECT_EQ(ValueOf("m / (0 - 1)", kMost), -kMost);
  EXPECT_EQ(ValueOf("m % (0 - 1)", kLeast), 0);
}

TEST(IntegerExpressionTest, FindsPowersOfTwo) {
  for (const int64_t m : {-5, 0, 1}) EXPECT_EQ(ValueOf("next_pow2(m)", m), 1) << m;
  EXPECT_EQ(ValueOf("next_pow2(m)", 2), 2);
  EXPECT_EQ(ValueOf("next_pow2(m)", 3), 4);
  EXPECT_EQ(ValueOf("next_pow2(m)", 1025), 2048);
  EXPECT_EQ(ValueOf("next_pow2(m)", int64_t{1} << 62), int64_t{1} << 62);
  EXPECT_EQ(Wrong("next_pow2(m)", (int64_t{1} << 62) + 1),
            "\"next_pow2(m)\", column 1: next_pow2(4611686018427387905) exceeds 64 bits");
}

TEST(IntegerExpressionTest, ComparesInConditionsOnly) {
  for (const int64_t m : {4, 5, 6}) {
    EXPECT_EQ(Holds("m == 5", m), m == 5);
    EXPECT_EQ(Holds("m != 5", m), m != 5);
    EXPECT_EQ(Holds("m <= 5", m), m <= 5);
    EXPECT_EQ(Holds("m >= 5", m), m >= 5);
    EXPECT_EQ(Holds("m < 5", m), m < 5);
    EXPECT_EQ(Holds("m > 5", m), m > 5);
  }
  EXPECT_TRUE(Holds("m % 8 == n - 1", 16, 1));
  EXPECT_EQ(Wrong("m == 5"), "\"m == 5\", column 3: expected an operator");
  for (const char* const text : {"m", "m == 5 == 1", "(m < 5)", "m =< 5", "m = 5", "< 5"})
    EXPECT_TRUE(absl::IsInvalidArgument(IntegerExpression::ParseCondition(text, IsName).status()))
        << text;
}

TEST(IntegerExpressionTest, SaysWhereItCannotBeComputed) {
  EXPECT_EQ(Wrong("1 + m * n", kMost, 2),
            "\"1 + m * n\", column 7: 9223372036854775807 * 2 exceeds 64 bits");
  EXPECT_EQ(Wrong("m + n", kMost, 1),
            "\"m + n\", column 3: 9223372036854775807 + 1 exceeds 64 bits");
  EXPECT_EQ(Wrong("m - 1", kLeast),
            "\"m - 1\", column 3: -9223372036854775808 - 1 exceeds 64 bits");
  EXPECT_EQ(Wrong("m / (0 - 1)", kLeast),
            "\"m / (0 - 1)\", column 3: 0 - -9223372036854775808 exceeds 64 bits");
  for (const char* const text : {"m / n", "m % n", "ceil(m / n)"})
    EXPECT_THAT(Wrong(text, 5, 0), HasSubstr(": 5 is divided by 0")) << text;
  EXPECT_EQ(Wrong("m + x.rank"), "\"m + x.rank\", column 5: x.rank has no value");
}

TEST(IntegerExpressionTest, SaysWhereItIsWrong) {
  EXPECT_EQ(Wrong("m + k"), "\"m + k\", column 5: expected a number or a known name");
  EXPECT_EQ(Wrong("(m"), "\"(m\", column 3: expected \")\"");
  EXPECT_EQ(Wrong("m n"), "\"m n\", column 3: expected an operator");
  EXPECT_EQ(Wrong("2 * ceil(m / 2 + 1)"),
            "\"2 * ceil(m / 2 + 1)\", column 5: ceil takes a quotient, as ceil(a / b)");
  for (const char* const text : {"",
                                 "m +",
                                 "* m",
                                 "m)",
                                 "ceil(m)",
                                 "ceil m / n",
                                 "ceil(m / n",
                                 "-m",
                                 "1.5",
                                 "min()",
                                 "min(m,)",
                                 "min m",
                                 "next_pow2(m, n)",
                                 "9223372036854775808",
                                 "m; n",
                                 "ceilm",
                                 "x",
                                 "x.",
                                 "x.shape",
                                 "x.shape[",
                                 "x.shape[1]",
                                 "x.shape[-1",
                                 "x.rank.rank",
                                 "0x10",
                                 "1m"})
    Wrong(text);
}

TEST(IntegerExpressionTest, IsLimited) {
  const std::string deep(IntegerExpression::kDepthMax, '(');
  const std::string closing(IntegerExpression::kDepthMax, ')');
  EXPECT_EQ(ValueOf(absl::StrCat(deep, "1", closing)), 1);
  EXPECT_THAT(Wrong(absl::StrCat("(", deep, "1", closing, ")")),
              HasSubstr("at most 16 parentheses"));
  EXPECT_EQ(Wrong(std::string(1025, '1')), "an expression has 1025 characters; the limit is 1024");
  // 128 numbers and 127 sums, and then one more of each.
  std::string sum = "1";
  for (int i = 1; i < 128; ++i) absl::StrAppend(&sum, "+1");
  EXPECT_EQ(ValueOf(sum), 128);
  EXPECT_THAT(Wrong(sum + "+1"), HasSubstr("the limit is 256 numbers, names and operations"));
}

}  // namespace
}  // namespace warpcall::manifest
