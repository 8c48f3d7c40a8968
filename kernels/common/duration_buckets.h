// The buckets of every duration histogram: upper bounds of 1 us x 2^k for k = 0 .. 24 (16.8 s),
// then +Inf.
#pragma once

#include <bit>
#include <cstdint>

#include "proto/common/check.h"

namespace warpcall {

inline constexpr int kBoundedBucketCount = 25;
inline constexpr int kBucketCount = kBoundedBucketCount + 1;
inline constexpr int64_t kFirstBucketNs = 1000;

// REQUIRES: 0 <= bucket < kBoundedBucketCount. The bound belongs to its bucket ("le").
constexpr int64_t BucketUpperBoundNs(int bucket) {
  WARPCALL_DCHECK(bucket >= 0 && bucket < kBoundedBucketCount, bucket);
  return kFirstBucketNs << bucket;
}

// The first bucket whose bound is not below `ns`. ns <= 1000 x 2^k holds exactly when floor((ns -
// 1) / 1000) < 2^k, that is when it has at most k bits.
constexpr int BucketOf(int64_t ns) {
  if (ns <= kFirstBucketNs) return 0;
  const int bits = std::bit_width(static_cast<uint64_t>(ns - 1) / kFirstBucketNs);
  return bits < kBoundedBucketCount ? bits : kBoundedBucketCount;
}

}  // namespace warpcall
