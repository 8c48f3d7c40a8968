// Rates and latencies of the last minute, from the counters and histograms behind /metrics.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "kernels/common/duration_buckets.h"
#include "server/engine/clock.h"

namespace warpcall {

// A histogram's counts, by bucket.
using DurationCounts = std::array<uint64_t, kBucketCount>;

uint64_t CountOf(const DurationCounts& durations);

// Requests of one kernel: since the server began, or between two moments.
struct TrafficCounts {
  DurationCounts answered = {};  // from receipt to answer, refused requests included
  DurationCounts waited = {};    // in the queue, of requests whose kernel ran
  uint64_t failed = 0;           // answered with another code than OK

  TrafficCounts& operator+=(const TrafficCounts& other);
};

// Returns what was counted between `before` and `now`. A histogram that lost counts began anew: all
// of its counts are new. So does a counter.
TrafficCounts CountedBetween(const TrafficCounts& before, const TrafficCounts& now);

// A quantile's estimate in seconds.
struct Quantile {
  double seconds = 0;
  bool is_lower_bound = false;  // it lies in the last bucket, which has no upper bound
};

// Estimates the quantile `q`, 0 to 1, as if the durations of a bucket were spread evenly over it,
// as Prometheus' histogram_quantile does. Buckets double, so the estimate may be twice the true
// quantile, or half. Null if nothing was counted.
std::optional<Quantile> QuantileOf(const DurationCounts& durations, double q);

// Keeps the counts of the last minute, kSamplesMax of them, with 0.4 KiB for each kernel.
// Thread-safe.
class TrafficHistory {
 public:
  using Counts = std::vector<TrafficCounts>;  // by kernel

  // What was counted in the last `seconds`.
  struct Window {
    double seconds = 0;
    Counts counts;
    Counts since_start;
  };

  static constexpr absl::Duration kPeriod = absl::Seconds(5);  // between two calls of Sample
  static constexpr absl::Duration kMinute = absl::Minutes(1);
  static constexpr size_t kSamplesMax = 13;  // ends of 12 periods

  // `read` returns the counts since the server began, always of as many kernels; its calls are
  // ordered by a lock.
  TrafficHistory(std::function<Counts()> read, Clock clock);

  void Sample() ABSL_LOCKS_EXCLUDED(mutex_);
  // Reads the counts and compares them with the newest sample that is a minute old, else with the
  // oldest one: a young server's window is shorter, and one whose samples came late is longer.
  Window LastMinute() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Moment {
    int64_t ns;
    Counts counts;
  };

  const std::function<Counts()> read_;
  const Clock clock_;
  mutable absl::Mutex mutex_;
  std::deque<Moment> samples_ ABSL_GUARDED_BY(mutex_);  // oldest first; never empty
};

}  // namespace warpcall
