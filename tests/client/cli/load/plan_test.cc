#include "client/cli/load/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace warpcall::cli {
namespace {

std::vector<Arrival> Take(const ArrivalPlan::Options& options, size_t count) {
  ArrivalPlan plan(options);
  std::vector<Arrival> arrivals(count);
  for (Arrival& arrival : arrivals) arrival = plan.Next();
  return arrivals;
}

std::vector<int64_t> Times(const std::vector<Arrival>& arrivals) {
  std::vector<int64_t> times;
  for (const Arrival& arrival : arrivals) times.push_back(arrival.planned_ns);
  return times;
}

TEST(ArrivalPlanTest, UniformArrivalsAreEvenlySpacedFromZero) {
  const auto arrivals =
      Take({.rate_per_second = 3, .arrivals = Arrivals::kUniform, .weights = {1}, .seed = 1}, 7);
  EXPECT_THAT(Times(arrivals), ::testing::ElementsAre(0, 333333333, 666666667, 1000000000,
                                                      1333333333, 1666666667, 2000000000));
}

TEST(ArrivalPlanTest, PoissonArrivalsHaveTheRateAndItsSpread) {
  constexpr size_t kCount = 100'000;
  constexpr double kRate = 2000;
  const auto times = Times(
      Take({.rate_per_second = kRate, .arrivals = Arrivals::kPoisson, .weights = {1}, .seed = 5},
           kCount));
  EXPECT_TRUE(std::is_sorted(times.begin(), times.end()));
  // The sum of n exponential gaps has the relative deviation 1/sqrt(n); allow five of them.
  EXPECT_NEAR(static_cast<double>(times.back()) * 1e-9, kCount / kRate,
              5 * kCount / kRate / std::sqrt(kCount));
  // A Poisson process leaves e^-1 of all gaps above the mean gap.
  size_t above = 0;
  for (size_t i = 1; i < kCount; ++i)
    above += static_cast<double>(times[i] - times[i - 1]) > 1e9 / kRate;
  EXPECT_NEAR(static_cast<double>(above) / kCount, std::exp(-1), 5 * 0.5 / std::sqrt(kCount));
}

TEST(ArrivalPlanTest, TheSeedDecidesEverything) {
  ArrivalPlan::Options options = {
      .rate_per_second = 10, .arrivals = Arrivals::kPoisson, .weights = {1, 2, 3}, .seed = 9};
  const auto first = Take(options, 100);
  const auto again = Take(options, 100);
  options.seed = 10;
  const auto other = Take(options, 100);
  const auto entries = [](const std::vector<Arrival>& arrivals) {
    std::vector<size_t> all;
    for (const Arrival& arrival : arrivals) all.push_back(arrival.entry);
    return all;
  };
  EXPECT_EQ(Times(first), Times(again));
  EXPECT_EQ(entries(first), entries(again));
  EXPECT_NE(Times(first), Times(other));
  EXPECT_NE(entries(first), entries(other));
}

TEST(EntryChooserTest, EntriesComeInProportionToTheirWeights) {
  constexpr int kCount = 100'000;
  EntryChooser chooser({80, 15, 4.5, 0.5}, 3);
  std::vector<double> seen(4);
  for (int i = 0; i < kCount; ++i) seen[chooser.Next()] += 1.0 / kCount;
  const double five_deviations = 5 * 0.5 / std::sqrt(kCount);
  EXPECT_NEAR(seen[0], 0.80, five_deviations);
  EXPECT_NEAR(seen[1], 0.15, five_deviations);
  EXPECT_NEAR(seen[2], 0.045, five_deviations);
  EXPECT_NEAR(seen[3], 0.005, 5 * std::sqrt(0.005 / kCount));
}

}  // namespace
}  // namespace warpcall::cli
