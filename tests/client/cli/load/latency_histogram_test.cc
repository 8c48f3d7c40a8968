#include "client/cli/load/latency_histogram.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <random>
#include <thread>
#include <vector>

namespace warpcall::cli {
namespace {

constexpr double kFractions[] = {0, 0.001, 0.01, 0.1, 0.5, 0.9, 0.99, 0.999, 0.9999, 1};

// The nearest rank, as Percentile defines it.
int64_t Exact(std::vector<int64_t> values, double fraction) {
  std::sort(values.begin(), values.end());
  const auto rank = static_cast<size_t>(std::ceil(fraction * static_cast<double>(values.size())));
  return values[std::max<size_t>(rank, 1) - 1];
}

void ExpectClose(const LatencyHistogram& histogram, const std::vector<int64_t>& values) {
  for (const double fraction : kFractions) {
    const auto exact = static_cast<double>(Exact(values, fraction));
    EXPECT_NEAR(static_cast<double>(histogram.Percentile(fraction)), exact,
                exact * LatencyHistogram::kRelativeErrorMax)
        << "at " << fraction;
  }
}

std::vector<int64_t> LogNormal(size_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::lognormal_distribution<double> distribution(13, 3);  // around 0.4 ms, 25 ns to 10 s
  std::vector<int64_t> values(count);
  for (int64_t& value : values) value = std::llround(distribution(random));
  return values;
}

TEST(LatencyHistogramTest, PercentilesAreWithinTheBoundOfExactOnes) {
  static_assert(LatencyHistogram::kRelativeErrorMax <= 0.01);
  for (const size_t count : {1u, 2u, 10u, 999u, 100'000u}) {
    LatencyHistogram histogram;
    const std::vector<int64_t> values = LogNormal(count, count);
    for (const int64_t value : values) histogram.Record(value);
    EXPECT_EQ(histogram.Count(), static_cast<int64_t>(count));
    ExpectClose(histogram, values);
  }
}

TEST(LatencyHistogramTest, EveryPowerOfTwoAndItsNeighboursKeepTheBound) {
  for (int bit = 0; bit < 47; ++bit) {
    for (const int64_t offset : {-1, 0, 1}) {
      const int64_t value = (int64_t{1} << bit) + offset;
      LatencyHistogram histogram;
      histogram.Record(value);
      histogram.Record(LatencyHistogram::kValueMax);  // or Max() would answer
      EXPECT_NEAR(static_cast<double>(histogram.Percentile(0.5)), static_cast<double>(value),
                  static_cast<double>(value) * LatencyHistogram::kRelativeErrorMax);
    }
  }
}

TEST(LatencyHistogramTest, SmallValuesMeanAndMaxAreExact) {
  LatencyHistogram histogram;
  for (int64_t value = 0; value < 128; ++value) histogram.Record(value);
  for (int64_t value = 1; value < 128; ++value)
    EXPECT_EQ(histogram.Percentile(static_cast<double>(value) / 128), value - 1);
  histogram.Record(1'000'003);
  EXPECT_EQ(histogram.Max(), 1'000'003);
  EXPECT_EQ(histogram.Percentile(1), 1'000'003);
  EXPECT_DOUBLE_EQ(histogram.Mean(), (127 * 64 + 1'000'003) / 129.0);
}

TEST(LatencyHistogramTest, AnEmptyOneIsAllZero) {
  const LatencyHistogram histogram;
  EXPECT_EQ(histogram.Count(), 0);
  EXPECT_EQ(histogram.Percentile(0.99), 0);
  EXPECT_EQ(histogram.Max(), 0);
  EXPECT_EQ(histogram.Mean(), 0);
}

TEST(LatencyHistogramTest, ValuesOutOfRangeCountAsTheNearestInside) {
  LatencyHistogram histogram;
  histogram.Record(-5);
  histogram.Record(INT64_MAX);
  EXPECT_EQ(histogram.Percentile(0.5), 0);
  EXPECT_EQ(histogram.Max(), LatencyHistogram::kValueMax);
}

TEST(LatencyHistogramTest, MergedIsWhatOneWouldHaveRecorded) {
  LatencyHistogram merged;
  std::vector<int64_t> all;
  for (const uint64_t seed : {1u, 2u, 3u}) {
    LatencyHistogram part;
    const std::vector<int64_t> values = LogNormal(1000 * seed, seed);
    for (const int64_t value : values) part.Record(value);
    merged.Merge(part);
    all.insert(all.end(), values.begin(), values.end());
  }
  EXPECT_EQ(merged.Count(), 6000);
  EXPECT_EQ(merged.Max(), *std::max_element(all.begin(), all.end()));
  ExpectClose(merged, all);
}

TEST(LatencyHistogramTest, SubtractingAnEarlierStateLeavesWhatCameSince) {
  LatencyHistogram earlier, now;
  for (int i = 0; i < 100; ++i) now.Record(5'000'000);
  earlier.Merge(now);
  const std::vector<int64_t> since = LogNormal(500, 7);
  for (const int64_t value : since) now.Record(value);
  now.Subtract(earlier);
  EXPECT_EQ(now.Count(), 500);
  for (const double fraction : {0.1, 0.5, 0.99}) {
    const auto exact = static_cast<double>(Exact(since, fraction));
    EXPECT_NEAR(static_cast<double>(now.Percentile(fraction)), exact,
                exact * LatencyHistogram::kRelativeErrorMax);
  }
}

TEST(LatencyHistogramTest, TheSlowestOfAllIsForgottenWhereItCameBefore) {
  LatencyHistogram earlier, now;
  now.Record(1'000'000'000);
  earlier.Merge(now);
  for (int i = 0; i < 10; ++i) now.Record(1'000'000 + i);
  now.Subtract(earlier);
  EXPECT_NEAR(static_cast<double>(now.Percentile(0.99)), 1e6,
              1e6 * LatencyHistogram::kRelativeErrorMax);
}

TEST(LatencyHistogramTest, MayBeReadWhileItIsWritten) {
  LatencyHistogram histogram;
  std::atomic<bool> reading{false};
  std::thread writer([&] {
    while (!reading) histogram.Record(1000);
    for (int i = 0; i < 100'000; ++i) histogram.Record(1000);
  });
  for (int64_t last = 0, i = 0; i < 100; ++i) {
    LatencyHistogram copy;
    copy.Merge(histogram);
    EXPECT_GE(copy.Count(), last);
    last = copy.Count();
    reading = true;
  }
  writer.join();
  EXPECT_GE(histogram.Count(), 100'000);
  EXPECT_EQ(histogram.Percentile(0.5), 1000);
}

}  // namespace
}  // namespace warpcall::cli
