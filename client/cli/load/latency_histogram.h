// Percentiles of many times in fixed memory: a histogram with logarithmic buckets, each power of
// two cut into 64 equal parts, after Gil Tene's HdrHistogram.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace warpcall::cli {

// One thread records; any thread may read meanwhile and sees each value a little earlier or later
// (so that a sum may be ahead of its count). Takes 21 KiB.
class LatencyHistogram {
 public:
  // The error of Percentile: half a bucket.
  static constexpr double kRelativeErrorMax = 1.0 / 128;
  // Some 39 hours. Larger values count as this much.
  static constexpr int64_t kValueMax = (int64_t{1} << 47) - 1;

  LatencyHistogram() = default;
  LatencyHistogram(const LatencyHistogram&) = delete;
  LatencyHistogram& operator=(const LatencyHistogram&) = delete;

  // Values below 0 count as 0.
  void Record(int64_t nanoseconds);

  // Both are for one thread that records nothing meanwhile; `other` may be recorded into.
  void Merge(const LatencyHistogram& other);
  // Takes out what `earlier`, an older state of this histogram, had. Max() stays what it was.
  void Subtract(const LatencyHistogram& earlier);

  int64_t Count() const;
  // The least value that at least `fraction` (0 to 1) of all are not above, exact below 128 ns and
  // where it is the largest of all, and else within kRelativeErrorMax; 0 when there is none.
  int64_t Percentile(double fraction) const;
  // These are exact; 0 when there is none.
  int64_t Max() const { return max_.load(std::memory_order_relaxed); }
  double Mean() const;

 private:
  static constexpr int kPartBits = 6;
  static constexpr int kValueBits = 47;
  // Values below 2 x 64 have buckets of their own; then 64 for each further power of two.
  static constexpr size_t kBuckets = size_t{kValueBits - kPartBits + 1} << kPartBits;

  static size_t BucketOf(int64_t value);
  static int64_t MiddleOf(size_t bucket);

  std::array<std::atomic<int64_t>, kBuckets> counts_ = {};
  std::atomic<int64_t> sum_{0};
  std::atomic<int64_t> max_{0};
};

}  // namespace warpcall::cli
