#include "client/cpp/rpc/retry.h"

#include <gtest/gtest.h>

#include <optional>
#include <set>

namespace warpcall::client {
namespace {

constexpr absl::Time kNow = absl::UnixEpoch();
constexpr absl::Time kNever = absl::InfiniteFuture();
const Refusal kUnavailable{absl::StatusCode::kUnavailable, std::nullopt};

class RetryScheduleTest : public ::testing::Test {
 protected:
  RetryOptions options_;
  RetryBudget budget_{options_};
  RetrySchedule schedule_{options_, &budget_};
};

TEST_F(RetryScheduleTest, BackoffDoublesUpToItsCapWithinTheJitter) {
  options_.attempts_max = 10;
  double expected_ms = 50;
  for (int i = 0; i < 9; ++i) {
    const auto pause = schedule_.Next(kUnavailable, kNow, kNever);
    ASSERT_TRUE(pause.has_value());
    EXPECT_GE(absl::ToDoubleMilliseconds(*pause), 0.799 * expected_ms);
    EXPECT_LE(absl::ToDoubleMilliseconds(*pause), 1.201 * expected_ms);
    expected_ms = std::min(2000.0, 2 * expected_ms);
  }
}

TEST_F(RetryScheduleTest, JitterSpreadsThePauses) {
  std::set<absl::Duration> pauses;
  for (int i = 0; i < 8; ++i)
    pauses.insert(RetrySchedule(options_, &budget_).Next(kUnavailable, kNow, kNever).value());
  EXPECT_GT(pauses.size(), 1u);
}

TEST_F(RetryScheduleTest, StopsAfterTheAttempts) {
  for (int attempt = 1; attempt < options_.attempts_max; ++attempt)
    EXPECT_TRUE(schedule_.Next(kUnavailable, kNow, kNever).has_value());
  EXPECT_FALSE(schedule_.Next(kUnavailable, kNow, kNever).has_value());
  EXPECT_EQ(schedule_.attempts(), options_.attempts_max);
}

TEST_F(RetryScheduleTest, TheServerSaysWhetherAndWhenWithinTheDeadline) {
  using Code = absl::StatusCode;
  const int64_t limit_ms = absl::ToInt64Milliseconds(options_.pushback_max);
  const absl::Time soon = kNow + absl::Milliseconds(100);
  const struct {
    Refusal refusal;
    absl::Time deadline;
    std::optional<int64_t> pause_ms;  // nothing: it stands
  } kCases[] = {
      {{Code::kResourceExhausted, 250}, kNever, 250},
      {{Code::kUnavailable, 0}, kNever, 0},
      {{Code::kUnavailable, limit_ms}, kNever, limit_ms},
      {{Code::kUnavailable, limit_ms + 1}, kNever, std::nullopt},
      {{Code::kUnavailable, -1}, kNever, std::nullopt},
      {{Code::kUnavailable, 99}, soon, 99},
      {{Code::kUnavailable, 100}, soon, std::nullopt},
      {{Code::kResourceExhausted, std::nullopt}, kNever, std::nullopt},
      {{Code::kInvalidArgument, 1}, kNever, std::nullopt},
      {{Code::kNotFound, 1}, kNever, std::nullopt},
      {{Code::kUnimplemented, 1}, kNever, std::nullopt},
      {{Code::kDeadlineExceeded, 1}, kNever, std::nullopt},
      {{Code::kCancelled, 1}, kNever, std::nullopt},
      {{Code::kInternal, 1}, kNever, std::nullopt},
  };
  for (const auto& c : kCases) {
    const auto pause = RetrySchedule(options_, &budget_).Next(c.refusal, kNow, c.deadline);
    EXPECT_EQ(pause.has_value(), c.pause_ms.has_value())
        << absl::StatusCodeToString(c.refusal.code) << ", " << c.refusal.pushback_ms.value_or(-99);
    EXPECT_EQ(pause.value_or(absl::ZeroDuration()), absl::Milliseconds(c.pause_ms.value_or(0)));
  }
}

TEST_F(RetryScheduleTest, BudgetIsSharedAndSuccessRefillsIt) {
  options_.budget_max = 2;
  options_.budget_per_success = 0.5;
  RetryBudget budget(options_);
  const auto next = [&] {
    return RetrySchedule(options_, &budget).Next(kUnavailable, kNow, kNever).has_value();
  };
  EXPECT_TRUE(next());
  EXPECT_TRUE(next());
  EXPECT_FALSE(next());
  budget.AddSuccess();
  EXPECT_FALSE(next());
  budget.AddSuccess();
  EXPECT_TRUE(next());
  for (int i = 0; i < 100; ++i) budget.AddSuccess();
  EXPECT_TRUE(next());
  EXPECT_TRUE(next());
  EXPECT_FALSE(next()) << "successes filled the budget beyond its limit";
}

TEST(ParsePushbackMsTest, WhatIsNoIntegerMeansNoRetry) {
  EXPECT_EQ(ParsePushbackMs("15"), 15);
  EXPECT_EQ(ParsePushbackMs("-1"), -1);
  EXPECT_LT(ParsePushbackMs("soon"), 0);
  EXPECT_LT(ParsePushbackMs(""), 0);
  EXPECT_LT(ParsePushbackMs("99999999999999999999"), 0);
}

}  // namespace
}  // namespace warpcall::client
