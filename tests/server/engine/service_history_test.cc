#include "server/engine/service_history.h"

#include <gtest/gtest.h>

namespace warpcall {
namespace {

constexpr Work kWork = {.bytes = 1000, .flops = 0};

TEST(ServiceHistoryTest, GuessesUntilSeveralJobsWereMeasured) {
  ServiceHistory history(2);
  const ServiceHistory::Prediction guess = history.Predict(1, kWork);
  EXPECT_FALSE(guess.measured);
  EXPECT_GT(guess.ns, 0);
  EXPECT_GT(history.Predict(1, {.bytes = 1 << 30, .flops = 0}).ns, guess.ns);
  for (int i = 0; i < 3; ++i) history.Note(1, kWork, 500);
  EXPECT_FALSE(history.Predict(1, kWork).measured);
  history.Note(1, kWork, 500);
  EXPECT_TRUE(history.Predict(1, kWork).measured);
  EXPECT_EQ(history.Predict(1, kWork).ns, 500);
}

TEST(ServiceHistoryTest, KnowsRowsAndSizesApart) {
  ServiceHistory history(2);
  for (int i = 0; i < 4; ++i) history.Note(0, kWork, 500);
  EXPECT_FALSE(history.Predict(1, kWork).measured);
  EXPECT_FALSE(history.Predict(0, {.bytes = 5000, .flops = 0}).measured);
  EXPECT_FALSE(history.Predict(0, {.bytes = 1000, .flops = 1 << 20}).measured);
  EXPECT_TRUE(history.Predict(0, {.bytes = 1001, .flops = 0}).measured);
}

TEST(ServiceHistoryTest, FollowsAChangeAndForgetsASlowStart) {
  ServiceHistory history(1);
  history.Note(0, kWork, 1'000'000'000);
  for (int i = 0; i < 4; ++i) history.Note(0, kWork, 100);
  EXPECT_EQ(history.Predict(0, kWork).ns, 100);
  for (int i = 0; i < 60; ++i) history.Note(0, kWork, 10'000);
  EXPECT_NEAR(static_cast<double>(history.Predict(0, kWork).ns), 10'000, 100);
}

TEST(ServiceHistoryTest, DoubtWearsAPredictionDown) {
  ServiceHistory history(1);
  for (int i = 0; i < 4; ++i) history.Note(0, kWork, 1'000'000);
  for (int i = 0; i < 20; ++i) history.Doubt(0, kWork);
  EXPECT_LT(history.Predict(0, kWork).ns, 100'000);
}

TEST(ServiceHistoryTest, TakesTheLargestWork) {
  ServiceHistory history(1);
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  for (int i = 0; i < 4; ++i) history.Note(0, {.bytes = kMax, .flops = kMax}, 7);
  EXPECT_EQ(history.Predict(0, {.bytes = kMax, .flops = kMax}).ns, 7);
}

}  // namespace
}  // namespace warpcall
