#include "server/metrics/traffic.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "proto/common/check.h"

namespace warpcall {
namespace {

// Dividing gives the double nearest to a bound, which prints short.
constexpr double kNsPerSecond = 1e9;

DurationCounts CountedBetween(const DurationCounts& before, const DurationCounts& now) {
  DurationCounts counted = now;
  for (size_t i = 0; i < counted.size(); ++i) {
    if (now[i] < before[i]) return now;
    counted[i] -= before[i];
  }
  return counted;
}

}  // namespace

uint64_t CountOf(const DurationCounts& durations) {
  return std::accumulate(durations.begin(), durations.end(), uint64_t{0});
}

TrafficCounts& TrafficCounts::operator+=(const TrafficCounts& other) {
  for (size_t i = 0; i < answered.size(); ++i) {
    answered[i] += other.answered[i];
    waited[i] += other.waited[i];
  }
  failed += other.failed;
  return *this;
}

TrafficCounts CountedBetween(const TrafficCounts& before, const TrafficCounts& now) {
  return {CountedBetween(before.answered, now.answered), CountedBetween(before.waited, now.waited),
          now.failed < before.failed ? now.failed : now.failed - before.failed};
}

std::optional<Quantile> QuantileOf(const DurationCounts& durations, double q) {
  WARPCALL_DCHECK(q >= 0 && q <= 1, q);
  const uint64_t count = CountOf(durations);
  if (count == 0) return std::nullopt;
  const double rank = q * static_cast<double>(count);
  double below = 0;
  for (int bucket = 0; bucket < kBoundedBucketCount; ++bucket) {
    const auto inside = static_cast<double>(durations[static_cast<size_t>(bucket)]);
    if (inside > 0 && below + inside >= rank) {
      const double low = bucket == 0 ? 0 : static_cast<double>(BucketUpperBoundNs(bucket - 1));
      const auto high = static_cast<double>(BucketUpperBoundNs(bucket));
      return Quantile{(low + (high - low) * std::max(0.0, rank - below) / inside) / kNsPerSecond};
    }
    below += inside;
  }
  const auto last = static_cast<double>(BucketUpperBoundNs(kBoundedBucketCount - 1));
  return Quantile{last / kNsPerSecond, true};
}

TrafficHistory::TrafficHistory(std::function<Counts()> read, Clock clock)
    : read_(std::move(read)), clock_(std::move(clock)) {
  Sample();
}

void TrafficHistory::Sample() {
  const absl::MutexLock lock(&mutex_);
  samples_.push_back({clock_(), read_()});
  if (samples_.size() > kSamplesMax) samples_.pop_front();
}

TrafficHistory::Window TrafficHistory::LastMinute() const {
  const absl::MutexLock lock(&mutex_);
  const int64_t now_ns = clock_();
  Window window;
  window.since_start = read_();
  const int64_t minute_ago_ns = now_ns - absl::ToInt64Nanoseconds(kMinute);
  const Moment* before = &samples_.front();
  for (const Moment& sample : samples_)
    if (sample.ns <= minute_ago_ns) before = &sample;
  WARPCALL_CHECK(before->counts.size() == window.since_start.size(), before->counts.size());
  window.seconds = static_cast<double>(now_ns - before->ns) / kNsPerSecond;
  for (size_t kernel = 0; kernel < window.since_start.size(); ++kernel)
    window.counts.push_back(CountedBetween(before->counts[kernel], window.since_start[kernel]));
  return window;
}

}  // namespace warpcall
