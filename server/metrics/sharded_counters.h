// Counters that many threads add to without waiting for each other: every thread adds to the shard
// that it was given on first use, and a reader sums the shards.
#pragma once

#include <atomic>
#include <cstddef>
#include <vector>

#include "proto/common/check.h"

namespace warpcall {

// Lanes and gRPC threads that record at the same time are a dozen or so; threads beyond that share
// shards, which costs them cache misses and nothing else.
inline constexpr size_t kShardCount = 16;

// The calling thread's shard, dealt out in turn.
inline size_t ShardOfThisThread() {
  static std::atomic<size_t> next{0};
  thread_local const size_t shard = next.fetch_add(1, std::memory_order_relaxed) % kShardCount;
  return shard;
}

// `size` counters of type T, all 0. Thread-safe and lock-free. For one reader, or readers ordered
// by a lock, a sum of additions >= 0 never decreases; sums of different counters need not belong to
// one instant.
template <typename T>
class ShardedCounters {
 public:
  explicit ShardedCounters(size_t size)
      : lines_per_shard_((size + kCellsPerLine - 1) / kCellsPerLine),
        lines_(lines_per_shard_ * kShardCount) {}

  // REQUIRES: index < size.
  void Add(size_t index, T delta) {
    WARPCALL_DCHECK(index < lines_per_shard_ * kCellsPerLine, index);
    Cell(ShardOfThisThread(), index).fetch_add(delta, std::memory_order_relaxed);
  }

  T Sum(size_t index) const {
    WARPCALL_DCHECK(index < lines_per_shard_ * kCellsPerLine, index);
    T sum = 0;
    for (size_t shard = 0; shard < kShardCount; ++shard) {
      sum += Cell(shard, index).load(std::memory_order_relaxed);
    }
    return sum;
  }

 private:
  static constexpr size_t kLineBytes = 64;  // on x86-64 and most of AArch64
  static constexpr size_t kCellsPerLine = kLineBytes / sizeof(T);
  // Whole lines per shard, so that no line belongs to two shards.
  struct alignas(kLineBytes) Line {
    std::atomic<T> cells[kCellsPerLine];
  };

  std::atomic<T>& Cell(size_t shard, size_t index) {
    return lines_[shard * lines_per_shard_ + index / kCellsPerLine].cells[index % kCellsPerLine];
  }
  const std::atomic<T>& Cell(size_t shard, size_t index) const {
    return lines_[shard * lines_per_shard_ + index / kCellsPerLine].cells[index % kCellsPerLine];
  }

  size_t lines_per_shard_;
  std::vector<Line> lines_;
};

}  // namespace warpcall
