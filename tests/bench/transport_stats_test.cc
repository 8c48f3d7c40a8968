#include "tests/bench/transport_stats.h"

#include <gtest/gtest.h>

#include <numeric>
#include <utility>

namespace warpcall::bench {
namespace {

TEST(Percentile, IsTheNearestRank) {
  std::vector<double> sorted(1000);
  std::iota(sorted.begin(), sorted.end(), 1);
  EXPECT_EQ(Percentile(sorted, 0.5), 500);
  EXPECT_EQ(Percentile(sorted, 0.99), 990);
  EXPECT_EQ(Percentile(sorted, 0.999), 999);
  EXPECT_EQ(Percentile(sorted, 1), 1000);
  EXPECT_EQ(Percentile({7}, 0.001), 7);
  EXPECT_EQ(Percentile({}, 0.5), 0);
}

TEST(Summarize, RatesAreOfTheWallAndCpuTimeIsPerRequest) {
  Tally tally = {{30, 10, 20, 40}, 0.5, 0.002};
  const Figures figures = Summarize(std::move(tally), 1'000'000);
  EXPECT_EQ(figures.requests, 4);
  EXPECT_EQ(figures.p50_us, 20);
  EXPECT_EQ(figures.p999_us, 40);
  EXPECT_DOUBLE_EQ(figures.requests_per_second, 8);
  EXPECT_DOUBLE_EQ(figures.gigabytes_per_second, 0.008);
  EXPECT_DOUBLE_EQ(figures.server_cpu_us, 500);
}

TEST(Summarize, OfNothingIsNothing) {
  const Figures figures = Summarize({}, 64);
  EXPECT_EQ(figures.requests, 0);
  EXPECT_EQ(figures.requests_per_second, 0);
}

}  // namespace
}  // namespace warpcall::bench
