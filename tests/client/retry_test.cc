#include "client/cpp/retry.h"

#include <gtest/gtest.h>

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

TEST_F(RetryScheduleTest, PushbackIsThePause) {
  const Refusal refusal{absl::StatusCode::kResourceExhausted, 250};
  EXPECT_EQ(schedule_.Next(refusal, kNow, kNever), absl::Milliseconds(250));
}

TEST_F(RetryScheduleTest, ZeroPushbackMeansAtOnce) {
  EXPECT_EQ(schedule_.Next({absl::StatusCode::kUnavailable, 0}, kNow, kNever),
            absl::ZeroDuration());
}

TEST_F(RetryScheduleTest, NegativePushbackEndsTheCall) {
  EXPECT_FALSE(schedule_.Next({absl::StatusCode::kUnavailable, -1}, kNow, kNever).has_value());
}

TEST_F(RetryScheduleTest, PushbackOverTheLimitEndsTheCall) {
  const int64_t limit_ms = absl::ToInt64Milliseconds(options_.pushback_max);
  EXPECT_TRUE(schedule_.Next({absl::StatusCode::kUnavailable, limit_ms}, kNow, kNever).has_value());
  EXPECT_FALSE(
      schedule_.Next({absl::StatusCode::kUnavailable, limit_ms + 1}, kNow, kNever).has_value());
}

TEST_F(RetryScheduleTest, ResourceExhaustedWithoutPushbackStands) {
  EXPECT_FALSE(schedule_.Next({absl::StatusCode::kResourceExhausted, std::nullopt}, kNow, kNever)
                   .has_value());
}

TEST_F(RetryScheduleTest, OtherCodesStandEvenWithPushback) {
  using Code = absl::StatusCode;
  for (const Code code : {Code::kInvalidArgument, Code::kNotFound, Code::kUnimplemented,
                          Code::kDeadlineExceeded, Code::kCancelled, Code::kInternal}) {
    EXPECT_FALSE(schedule_.Next({code, 1}, kNow, kNever).has_value())
        << absl::StatusCodeToString(code);
  }
}

TEST_F(RetryScheduleTest, NeverWaitsPastTheDeadline) {
  const Refusal refusal{absl::StatusCode::kUnavailable, 100};
  EXPECT_FALSE(schedule_.Next(refusal, kNow, kNow + absl::Milliseconds(100)).has_value());
  EXPECT_TRUE(schedule_.Next(refusal, kNow, kNow + absl::Milliseconds(101)).has_value());
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
