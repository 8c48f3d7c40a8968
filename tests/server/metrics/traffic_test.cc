#include "server/metrics/traffic.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace warpcall {
namespace {

constexpr int64_t kSecondNs = 1'000'000'000;
constexpr size_t kUnbounded = kBoundedBucketCount;

DurationCounts Counts(const std::vector<std::pair<int64_t, uint64_t>>& durations) {
  DurationCounts counts = {};
  for (const auto& [ns, count] : durations) counts[static_cast<size_t>(BucketOf(ns))] += count;
  return counts;
}

double SecondsOf(const DurationCounts& counts, double q) {
  const std::optional<Quantile> quantile = QuantileOf(counts, q);
  EXPECT_TRUE(quantile.has_value() && !quantile->is_lower_bound);
  return quantile.has_value() ? quantile->seconds : -1;
}

TEST(QuantileTest, NothingCountedHasNone) { EXPECT_FALSE(QuantileOf({}, 0.5).has_value()); }

// The bucket of 1000 to 2000 ns, ends excluded and included.
TEST(QuantileTest, LiesWithinItsBucketByItsRank) {
  const DurationCounts counts = Counts({{1001, 100}});
  EXPECT_DOUBLE_EQ(SecondsOf(counts, 0), 1000e-9);
  EXPECT_DOUBLE_EQ(SecondsOf(counts, 0.5), 1500e-9);
  EXPECT_DOUBLE_EQ(SecondsOf(counts, 0.99), 1990e-9);
  EXPECT_DOUBLE_EQ(SecondsOf(counts, 1), 2000e-9);
}

TEST(QuantileTest, TheFirstBucketBeginsAtZero) {
  EXPECT_DOUBLE_EQ(SecondsOf(Counts({{0, 1}, {1000, 1}}), 0.5), 500e-9);
}

// 90 of 1 us at most, 10 of 1 to 2 ms: p50 among the former, p99 among the latter.
TEST(QuantileTest, EmptyBucketsBetweenAreSkipped) {
  const DurationCounts counts = Counts({{1000, 90}, {1'500'000, 10}});
  EXPECT_DOUBLE_EQ(SecondsOf(counts, 0.5), 1000e-9 * 50 / 90);
  EXPECT_DOUBLE_EQ(SecondsOf(counts, 0.9), 1000e-9);
  EXPECT_NEAR(SecondsOf(counts, 0.99), (1024e-6 + 1024e-6 * 0.9), 1e-12);
}

TEST(QuantileTest, TheLastBucketGivesALowerBound) {
  DurationCounts counts = Counts({{1000, 1}});
  counts[kUnbounded] = 9;
  const std::optional<Quantile> p99 = QuantileOf(counts, 0.99);
  ASSERT_TRUE(p99.has_value());
  EXPECT_TRUE(p99->is_lower_bound);
  EXPECT_DOUBLE_EQ(p99->seconds, 1000e-9 * (1 << 24));
  EXPECT_FALSE(QuantileOf(counts, 0.05)->is_lower_bound);
}

TEST(CountedBetweenTest, SubtractsByBucketAndStartsAnewWhereCountsWereLost) {
  TrafficCounts before{.answered = Counts({{1000, 5}, {5000, 2}}), .failed = 3};
  TrafficCounts now{.answered = Counts({{1000, 9}, {5000, 2}}), .failed = 4};
  TrafficCounts counted = CountedBetween(before, now);
  EXPECT_EQ(counted.answered, Counts({{1000, 4}}));
  EXPECT_EQ(counted.failed, 1u);
  now = {.answered = Counts({{1000, 1}, {5000, 7}}), .failed = 2};  // one bucket fell
  counted = CountedBetween(before, now);
  EXPECT_EQ(counted.answered, now.answered);
  EXPECT_EQ(counted.failed, 2u);
}

class TrafficHistoryTest : public ::testing::Test {
 protected:
  void Answer(size_t kernel, uint64_t count) { counts_[kernel].answered[3] += count; }

  // As the timer does, `periods` times.
  void Pass(int periods) {
    for (int i = 0; i < periods; ++i) {
      now_ns_ += absl::ToInt64Nanoseconds(TrafficHistory::kPeriod);
      history_.Sample();
    }
  }

  uint64_t Recent(size_t kernel) const {
    return CountOf(history_.LastMinute().counts[kernel].answered);
  }

  int64_t now_ns_ = 77 * kSecondNs;
  TrafficHistory::Counts counts_ = TrafficHistory::Counts(2);
  TrafficHistory history_{[this] { return counts_; }, [this] { return now_ns_; }};
};

TEST_F(TrafficHistoryTest, AYoungServersWindowReachesToItsStart) {
  EXPECT_EQ(history_.LastMinute().seconds, 0);
  Answer(1, 4);
  now_ns_ += 3 * kSecondNs;
  const TrafficHistory::Window window = history_.LastMinute();
  EXPECT_DOUBLE_EQ(window.seconds, 3);
  EXPECT_EQ(CountOf(window.counts[0].answered), 0u);
  EXPECT_EQ(CountOf(window.counts[1].answered), 4u);
  EXPECT_EQ(CountOf(window.since_start[1].answered), 4u);
}

TEST_F(TrafficHistoryTest, ForgetsWhatWasCountedOverAMinuteAgo) {
  Answer(0, 100);
  Pass(1);
  Answer(0, 10);
  Pass(12);
  EXPECT_DOUBLE_EQ(history_.LastMinute().seconds, 60);
  EXPECT_EQ(Recent(0), 10u);
  now_ns_ += 4 * kSecondNs;  // before the next sample the window is as much longer
  EXPECT_DOUBLE_EQ(history_.LastMinute().seconds, 64);
  EXPECT_EQ(Recent(0), 10u);
  now_ns_ -= 4 * kSecondNs;
  Pass(1);
  EXPECT_EQ(Recent(0), 0u);
  EXPECT_EQ(CountOf(history_.LastMinute().since_start[0].answered), 110u);
}

TEST_F(TrafficHistoryTest, AMinuteWithoutRequestsHasNoRateAndNoQuantile) {
  Answer(0, 5);
  Pass(100);
  EXPECT_EQ(Recent(0), 0u);
  EXPECT_FALSE(QuantileOf(history_.LastMinute().counts[0].answered, 0.5).has_value());
}

// A timer that came late, because its machine slept: the window says how long it is.
TEST_F(TrafficHistoryTest, AWindowWithoutSamplesIsAsLongAsItIs) {
  Pass(13);
  now_ns_ += 600 * kSecondNs;
  Answer(0, 6);
  EXPECT_DOUBLE_EQ(history_.LastMinute().seconds, 600);
  EXPECT_EQ(Recent(0), 6u);
}

}  // namespace
}  // namespace warpcall
