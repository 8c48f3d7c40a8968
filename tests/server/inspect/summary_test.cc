#include "server/inspect/summary.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace warpcall::inspect {
namespace {

TEST(SummarizeTest, OneSampleIsEverythingAndNothingIsZeros) {
  for (const double sample : {0, 7}) {
    const Summary summary = Summarize(sample == 0 ? std::vector<double>() : std::vector{sample});
    EXPECT_EQ(summary.mean, sample);
    EXPECT_EQ(summary.median, sample);
    EXPECT_EQ(summary.min, sample);
    EXPECT_EQ(summary.p10, sample);
    EXPECT_EQ(summary.p90, sample);
    EXPECT_EQ(summary.median_low, sample);
    EXPECT_EQ(summary.median_high, sample);
    EXPECT_EQ(summary.noise, 0);
  }
}

TEST(SummarizeTest, TakesSamplesInAnyOrder) {
  const Summary summary = Summarize({10, 1, 9, 2, 8, 3, 7, 4, 6, 50});
  EXPECT_EQ(summary.mean, 10);
  EXPECT_EQ(summary.median, 6.5);
  EXPECT_EQ(summary.min, 1);
  EXPECT_EQ(summary.p10, 1);
  EXPECT_EQ(summary.p90, 10);
  EXPECT_EQ(Summarize({3, 1, 2}).median, 2);
  EXPECT_EQ(Summarize({3, 1, 2}).p90, 3);
}

// 1, 2, ..., count.
Summary OfFirst(int count) {
  std::vector<double> samples;
  for (int i = count; i > 0; --i) samples.push_back(i);
  return Summarize(std::move(samples));
}

// The places are those of the sign test's tables.
TEST(SummarizeTest, TheMedianLiesBetweenTwoSamples) {
  const std::pair<int, int> places[] = {
      {2, 1},  {5, 1},  {6, 1},   {8, 1},    {9, 2},      {11, 2},     {12, 3},
      {20, 6}, {25, 8}, {50, 18}, {100, 40}, {1000, 469}, {1001, 469}, {10'000, 4902}};
  for (const auto& [count, place] : places) {
    SCOPED_TRACE(count);
    const Summary summary = OfFirst(count);
    EXPECT_EQ(summary.median_low, place);
    EXPECT_EQ(summary.median_high, count + 1 - place);
    EXPECT_DOUBLE_EQ(summary.noise, (count + 1 - 2 * place) / 3.92 / summary.median);
  }
}

TEST(SummarizeTest, NoTimeHasNoNoise) { EXPECT_EQ(Summarize({0, 0, 0}).noise, 0); }

TEST(DriftTest, IsThatOfTheMediansOfRunsInTheirOrder) {
  EXPECT_DOUBLE_EQ(Drift({10, 90, 10, 10, 10, 12, 15, 15, 1}, 3), 0.5);
  EXPECT_DOUBLE_EQ(Drift({10, 15, 10, 15, 10, 15, 10, 15}, 4), 0);
  EXPECT_DOUBLE_EQ(Drift({4, 3, 2, 1}, 4), 3);
  // Ten samples make runs of two, three, two and three.
  EXPECT_DOUBLE_EQ(Drift({5, 5, 4, 9, 4, 5, 5, 4, 6, 4}, 4), 0.25);
}

TEST(DriftTest, FewSamplesAndNoTimeHaveNone) {
  EXPECT_EQ(Drift({1, 2, 3}, 4), 0);
  EXPECT_EQ(Drift({0, 0, 5, 5}, 4), 0);
}

}  // namespace
}  // namespace warpcall::inspect
