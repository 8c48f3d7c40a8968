#include "server/metrics/sharded_counters.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <vector>

#include "kernels/common/duration_buckets.h"
#include "proto/common/check.h"

namespace warpcall {
namespace {

TEST(ShardedCountersTest, AdditionsFromManyThreadsAreAllCounted) {
  constexpr int kThreads = 2 * static_cast<int>(kShardCount) + 1;  // some must share a shard
  constexpr int kRounds = 2000;
  ShardedCounters<uint64_t> counters(11);  // more than a line, not a whole number of them
  ShardedCounters<double> reals(11);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < kRounds; ++i) {
        for (size_t cell = 0; cell < 11; ++cell) {
          counters.Add(cell, cell + 1);
          reals.Add(cell, 0.5);
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t cell = 0; cell < 11; ++cell) {
    EXPECT_EQ(counters.Sum(cell), uint64_t{kThreads} * kRounds * (cell + 1));
    EXPECT_EQ(reals.Sum(cell), 0.5 * kThreads * kRounds);
  }
}

TEST(ShardedCountersTest, ThreadsOfOneShardLoseNothing) {
  constexpr uint64_t kRounds = 20'000'000;
  ShardedCounters<uint64_t> counters(1);
  const size_t shard = ShardOfThisThread();
  std::atomic<size_t> started{0};
  const auto await_start = [&started] {
    while (started < kShardCount) std::this_thread::yield();
  };
  std::atomic<uint64_t> sharers{1};
  std::vector<std::thread> threads;
  // Dealt out in turn, one of these is this thread's.
  for (size_t t = 0; t < kShardCount; ++t) {
    threads.emplace_back([&] {
      const bool shares = ShardOfThisThread() == shard;
      ++started;
      if (!shares) return;
      ++sharers;
      await_start();
      for (uint64_t i = 0; i < kRounds; ++i) counters.Add(0, 1);
    });
  }
  await_start();
  for (uint64_t i = 0; i < kRounds; ++i) counters.Add(0, 1);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(sharers, 2u);
  EXPECT_EQ(counters.Sum(0), sharers * kRounds);
}

TEST(DurationBucketsTest, ABoundBelongsToItsBucketAndTheNextNanosecondDoesNot) {
  EXPECT_EQ(BucketOf(-5), 0);
  EXPECT_EQ(BucketOf(0), 0);
  EXPECT_EQ(BucketOf(1), 0);
  for (int bucket = 0; bucket < kBoundedBucketCount; ++bucket) {
    const int64_t bound = BucketUpperBoundNs(bucket);
    EXPECT_EQ(bound, int64_t{1000} << bucket);
    EXPECT_EQ(BucketOf(bound - 1), bucket);
    EXPECT_EQ(BucketOf(bound), bucket);
    EXPECT_EQ(BucketOf(bound + 1), bucket + 1);
  }
  EXPECT_EQ(BucketOf(INT64_MAX), kBoundedBucketCount);
}

TEST(ShardedCountersDeathTest, CountsCellsThatItHas) {
  if (!WARPCALL_DCHECK_IS_ON) GTEST_SKIP() << "needs WARPCALL_DCHECK";
  ShardedCounters<uint64_t> counters(8);
  EXPECT_DEATH(counters.Add(8, 1), "index < lines_per_shard_");
  EXPECT_DEATH(BucketUpperBoundNs(kBoundedBucketCount), "bucket < kBoundedBucketCount");
}

}  // namespace
}  // namespace warpcall
