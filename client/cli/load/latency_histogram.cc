#include "client/cli/load/latency_histogram.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace warpcall::cli {
namespace {

// Adds for a single writer: a plain addition in the writer, no torn value in a reader.
void Add(std::atomic<int64_t>* total, int64_t value) {
  total->store(total->load(std::memory_order_relaxed) + value, std::memory_order_relaxed);
}

}  // namespace

// The leading 1 and the six bits below it choose the bucket within the power of two; the power of
// two, as the number of bits shifted out, chooses the group of 64.
size_t LatencyHistogram::BucketOf(int64_t value) {
  const auto bits = static_cast<uint64_t>(value);
  const int shift = std::max(0, static_cast<int>(std::bit_width(bits)) - (kPartBits + 1));
  return (static_cast<size_t>(shift) << kPartBits) + static_cast<size_t>(bits >> shift);
}

int64_t LatencyHistogram::MiddleOf(size_t bucket) {
  if (bucket < size_t{2} << kPartBits) return static_cast<int64_t>(bucket);
  const int shift = static_cast<int>(bucket >> kPartBits) - 1;
  const auto low = static_cast<int64_t>(bucket - (static_cast<size_t>(shift) << kPartBits))
                   << shift;
  return low + ((int64_t{1} << shift) >> 1);
}

void LatencyHistogram::Record(int64_t nanoseconds) {
  const int64_t value = std::clamp<int64_t>(nanoseconds, 0, kValueMax);
  Add(&counts_[BucketOf(value)], 1);
  Add(&sum_, value);
  if (value > Max()) max_.store(value, std::memory_order_relaxed);
}

void LatencyHistogram::Merge(const LatencyHistogram& other) {
  for (size_t i = 0; i < kBuckets; ++i)
    Add(&counts_[i], other.counts_[i].load(std::memory_order_relaxed));
  Add(&sum_, other.sum_.load(std::memory_order_relaxed));
  max_.store(std::max(Max(), other.Max()), std::memory_order_relaxed);
}

void LatencyHistogram::Subtract(const LatencyHistogram& earlier) {
  for (size_t i = 0; i < kBuckets; ++i)
    Add(&counts_[i], -earlier.counts_[i].load(std::memory_order_relaxed));
  Add(&sum_, -earlier.sum_.load(std::memory_order_relaxed));
  size_t highest = kBuckets;
  while (highest > 0 && counts_[highest - 1].load(std::memory_order_relaxed) <= 0) --highest;
  // The greatest of all may have come before.
  if (highest > 0 && BucketOf(Max()) != highest - 1)
    max_.store(MiddleOf(highest - 1), std::memory_order_relaxed);
}

int64_t LatencyHistogram::Count() const {
  int64_t count = 0;
  for (const auto& bucket : counts_) count += bucket.load(std::memory_order_relaxed);
  return count;
}

int64_t LatencyHistogram::Percentile(double fraction) const {
  const int64_t count = Count();
  if (count <= 0) return 0;
  const auto rank = std::clamp<int64_t>(
      static_cast<int64_t>(std::ceil(fraction * static_cast<double>(count))), 1, count);
  int64_t below = 0;
  size_t bucket = 0;
  while (bucket + 1 < kBuckets && below + counts_[bucket].load(std::memory_order_relaxed) < rank)
    below += counts_[bucket++].load(std::memory_order_relaxed);
  return rank == count ? Max() : std::min(MiddleOf(bucket), Max());
}

double LatencyHistogram::Mean() const {
  const int64_t count = Count();
  const auto sum = static_cast<double>(sum_.load(std::memory_order_relaxed));
  return count == 0 ? 0 : sum / static_cast<double>(count);
}

}  // namespace warpcall::cli
