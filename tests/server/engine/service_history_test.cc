#include "server/engine/service_history.h"

#include <gtest/gtest.h>

#include "tests/server/nanoseconds.h"

namespace warpcall {
namespace {

using testing::kSecond;

constexpr Work kWork = {.bytes = 1000, .flops = 0};

TEST(ServiceHistoryTest, GuessesUntilSeveralJobsWereMeasured) {
  ServiceHistory history(2);
  const ServiceHistory::Prediction guess = history.Predict(1, kWork);
  EXPECT_EQ(guess.basis, ServiceHistory::Basis::kGuess);
  EXPECT_GT(guess.ns, 0);
  EXPECT_GT(history.Predict(1, {.bytes = 1 << 30, .flops = 0}).ns, guess.ns);
  for (int i = 0; i < 3; ++i) history.Record(1, {kWork}, 500);
  EXPECT_FALSE(history.Predict(1, kWork).measured());
  history.Record(1, {kWork}, 500);
  EXPECT_TRUE(history.Predict(1, kWork).measured());
  EXPECT_EQ(history.Predict(1, kWork).ns, 500);
}

TEST(ServiceHistoryTest, KnowsRowsAndSizesApart) {
  ServiceHistory history(2);
  for (int i = 0; i < 4; ++i) history.Record(0, {kWork}, 500);
  EXPECT_FALSE(history.Predict(1, kWork).measured());
  EXPECT_FALSE(history.Predict(0, {.bytes = 5000, .flops = 0}).measured());
  EXPECT_FALSE(history.Predict(0, {.bytes = 1000, .flops = 1 << 20}).measured());
  EXPECT_TRUE(history.Predict(0, {.bytes = 1001, .flops = 0}).measured());
}

TEST(ServiceHistoryTest, FollowsAChangeAndForgetsASlowStart) {
  ServiceHistory history(1);
  history.Record(0, {kWork}, 1'000'000'000);
  for (int i = 0; i < 4; ++i) history.Record(0, {kWork}, 100);
  EXPECT_EQ(history.Predict(0, kWork).ns, 100);
  for (int i = 0; i < 60; ++i) history.Record(0, {kWork}, 10'000);
  EXPECT_NEAR(static_cast<double>(history.Predict(0, kWork).ns), 10'000, 100);
}

TEST(ServiceHistoryTest, RefusalsLowerAPrediction) {
  ServiceHistory history(1);
  for (int i = 0; i < 4; ++i) history.Record(0, {kWork}, 1'000'000);
  for (int i = 0; i < 20; ++i) history.LowerPrediction(0, {kWork});
  EXPECT_LT(history.Predict(0, kWork).ns, 100'000);
  ServiceHistory rated(2);
  rated.SetRate(0, {.fixed_ns = 0, .bytes_per_ns = 1, .flops_per_ns = 1});
  for (int row = 0; row < 2; ++row) rated.LowerPrediction(row, {{.bytes = 8000, .flops = 0}});
  EXPECT_EQ(rated.Predict(0, {.bytes = 8000, .flops = 0}).ns, 7000);
  EXPECT_EQ(rated.Predict(1, kWork).basis, ServiceHistory::Basis::kGuess);
}

constexpr Work kMatmul2048 = {.bytes = 3 * (int64_t{16} << 20), .flops = int64_t{1} << 34};

TEST(ServiceHistoryTest, WhatNobodyMeasuredMayTakeFarLongerThanItsGuess) {
  const ServiceHistory history(1);
  const ServiceHistory::Prediction large = history.Predict(0, kMatmul2048);
  EXPECT_LT(large.ns, 10'000'000);              // on an H200
  EXPECT_GT(large.ns_at_most, 60'000'000'000);  // in float64, on one core
  const ServiceHistory::Prediction small = history.Predict(0, {.bytes = 8192, .flops = 18'432});
  EXPECT_LT(small.ns_at_most, 1'000'000);
  const ServiceHistory::Prediction gelu = history.Predict(0, {.bytes = 8 << 20, .flops = 9 << 20});
  EXPECT_LT(gelu.ns_at_most, 100'000'000);  // gelu of 4 MiB
}

TEST(ServiceHistoryTest, ARateSetPredictsWhatNoJobWasOf) {
  ServiceHistory history(2);
  history.SetRate(1, {.fixed_ns = 2000, .bytes_per_ns = 10, .flops_per_ns = 0.5});
  const ServiceHistory::Prediction prediction = history.Predict(1, {.bytes = 1000, .flops = 50});
  EXPECT_EQ(prediction.basis, ServiceHistory::Basis::kRate);
  EXPECT_EQ(prediction.ns, 2000 + 100 + 100);
  EXPECT_GT(prediction.ns_at_most, 2 * prediction.ns);
  EXPECT_EQ(history.Predict(0, kWork).basis, ServiceHistory::Basis::kGuess);
  for (int i = 0; i < 4; ++i) history.Record(1, {kWork}, 500);
  EXPECT_EQ(history.Predict(1, kWork).ns, 500);
  EXPECT_EQ(history.Predict(1, kWork).ns_at_most, 500);
}

TEST(ServiceHistoryTest, OneFinishedJobTellsItsRowsRate) {
  ServiceHistory history(2);
  history.Record(0, {{.bytes = 3 << 20, .flops = int64_t{1} << 28}}, kSecond / 5);
  const ServiceHistory::Prediction prediction = history.Predict(0, kMatmul2048);
  EXPECT_EQ(prediction.basis, ServiceHistory::Basis::kRate);
  EXPECT_NEAR(static_cast<double>(prediction.ns), 12.8 * kSecond, 3 * kSecond);  // 64 times as much
  EXPECT_EQ(history.Predict(1, kMatmul2048).basis, ServiceHistory::Basis::kGuess);
  // A rate from trials is corrected by jobs, too.
  history.SetRate(1, {.fixed_ns = 0, .bytes_per_ns = 1e9, .flops_per_ns = 1});
  for (int i = 0; i < 30; ++i) history.Record(1, {{.bytes = 0, .flops = 10'000'000}}, 20'000'000);
  EXPECT_NEAR(static_cast<double>(history.Predict(1, {.bytes = 0, .flops = 500'000'000}).ns), 1e9,
              1e7);
}

TEST(ServiceHistoryTest, ATinyJobThatTookLongDoesNotDamnLargeOnes) {
  ServiceHistory history(1);
  // Eight milliseconds for eight bytes, as a library was loaded: by the byte, 273 kB take minutes.
  history.Record(0, {{.bytes = 8, .flops = 2}}, 8'000'000);
  EXPECT_LT(history.Predict(0, {.bytes = 273'000, .flops = 0}).ns, 100'000'000);
}

TEST(ServiceHistoryTest, ShortJobsTellNoRate) {
  ServiceHistory history(1);
  for (int i = 0; i < 8; ++i) history.Record(0, {{.bytes = 64, .flops = 16}}, 20'000);
  EXPECT_EQ(history.Predict(0, kMatmul2048).basis, ServiceHistory::Basis::kGuess);
}

// Two devices load a kernel, one after the other, and jobs of both are noted.
TEST(ServiceHistoryTest, AShortJobForgetsWhatLoadingTook) {
  ServiceHistory history(1);
  for (const int64_t ns : {400'000'000, 20'000, 250'000'000, 21'000})
    history.Record(0, {kWork}, ns);
  EXPECT_TRUE(history.Predict(0, kWork).measured());
  EXPECT_LT(history.Predict(0, kWork).ns, 8 * 21'000);
  // Times that merely vary are averaged.
  for (const int64_t ns : {21'000, 60'000}) history.Record(0, {kWork}, ns);
  EXPECT_GT(history.Predict(0, kWork).ns, 21'000);
}

TEST(ServiceHistoryTest, AShortJobTakesBackTheSlownessThatLoadingTold) {
  ServiceHistory history(1);
  history.SetRate(0, {.fixed_ns = 10'000, .bytes_per_ns = 50, .flops_per_ns = 1000});
  const Work small = {.bytes = 6'000'000, .flops = 0};
  const Work other = {.bytes = 60'000'000, .flops = 0};
  const int64_t by_rate_ns = history.Predict(0, other).ns;
  history.Record(0, {small}, 400'000'000);
  EXPECT_GT(history.Predict(0, other).ns, 100 * by_rate_ns);
  history.Record(0, {small}, 130'000);
  EXPECT_EQ(history.Predict(0, other).ns, by_rate_ns);
}

// A matmul of 64x100 by 100x64 was the first of a server and took 98 ms; then 2500x2500, which
// takes 0.6 s, was refused as work of minutes.
TEST(ServiceHistoryTest, ASlowFirstJobRefusesNoLargeOne) {
  const Work large = {.bytes = 3 * 25'000'000, .flops = 31'250'000'000};
  for (const int64_t flops : {819'200, 81'920'000}) {
    ServiceHistory history(1);
    history.SetRate(0, {.fixed_ns = 10'000, .bytes_per_ns = 10, .flops_per_ns = 50});
    const int64_t by_rate_ns = history.Predict(0, large).ns;
    history.Record(0, {{.bytes = 70'000, .flops = flops}}, 98'000'000);
    EXPECT_LE(history.Predict(0, large).ns_at_least, by_rate_ns);
  }
  // So little work says nothing at all.
  ServiceHistory history(1);
  history.SetRate(0, {.fixed_ns = 10'000, .bytes_per_ns = 10, .flops_per_ns = 50});
  const int64_t by_rate_ns = history.Predict(0, large).ns;
  history.Record(0, {{.bytes = 70'000, .flops = 819'200}}, 98'000'000);
  EXPECT_EQ(history.Predict(0, large).ns, by_rate_ns);
}

TEST(ServiceHistoryTest, AJobThatWasStoppedCountsOnlyWhereItTookLongerThanPredicted) {
  ServiceHistory history(1);
  for (int i = 0; i < 4; ++i) history.Record(0, {kWork}, 5'000'000);
  history.RecordAtLeast(0, {kWork}, 1'000'000);
  EXPECT_EQ(history.Predict(0, kWork).ns, 5'000'000);
  history.RecordAtLeast(0, {kWork}, 50'000'000);
  EXPECT_GT(history.Predict(0, kWork).ns, 10'000'000);
}

TEST(ServiceHistoryTest, TakesTheLargestWork) {
  ServiceHistory history(1);
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  EXPECT_GT(history.Predict(0, {.bytes = kMax, .flops = kMax}).ns, 0);
  EXPECT_GT(history.Predict(0, {.bytes = kMax, .flops = kMax}).ns_at_most, 0);
  for (int i = 0; i < 4; ++i) history.Record(0, {{.bytes = kMax, .flops = kMax}}, 7);
  EXPECT_EQ(history.Predict(0, {.bytes = kMax, .flops = kMax}).ns, 7);
}

TEST(ServiceHistoryTest, WorkOnTensorsThatStayIsPredictedByItself) {
  ServiceHistory history(2);
  const TimedWork stays{kWork, /*has_residents=*/true};
  for (int i = 0; i < 4; ++i) history.Record(0, {kWork}, 40'000'000);
  for (int i = 0; i < 4; ++i) history.Record(0, stays, 50'000);
  EXPECT_EQ(history.Predict(0, kWork).ns, 40'000'000);
  EXPECT_EQ(history.Predict(0, stays).ns, 50'000);
  EXPECT_FALSE(history.Predict(1, stays).measured());
}

}  // namespace
}  // namespace warpcall
