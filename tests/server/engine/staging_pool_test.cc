#include "server/engine/staging_pool.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "absl/synchronization/notification.h"
#include "server/engine/retry_pushback.h"

namespace warpcall {
namespace {

constexpr size_t kPage = StagingPool::kGranuleBytes;

Buffer Memory(size_t bytes) {
  return Buffer(
      std::aligned_alloc(kPage, bytes), bytes, [](void*, void* data, size_t) { std::free(data); },
      nullptr);
}

bool Never() { return false; }

TEST(StagingPool, HandsOutAlignedRangesThatDoNotOverlap) {
  StagingPool pool(Memory(8 * kPage));
  auto buffers = pool.Allocate({1, kPage, kPage + 1}, Never);
  ASSERT_TRUE(buffers.ok());
  for (const StagingBuffer& buffer : *buffers) {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % kPage, 0u);
    std::memset(buffer.data(), 1, buffer.bytes());
  }
  EXPECT_EQ((*buffers)[1].data() - (*buffers)[0].data(), static_cast<ptrdiff_t>(kPage));
  EXPECT_EQ((*buffers)[2].bytes(), kPage + 1);
  EXPECT_EQ(pool.used_bytes(), 4 * kPage);
  buffers->clear();
  EXPECT_EQ(pool.used_bytes(), 0u);
}

TEST(StagingPool, ZeroBytesTakeNothing) {
  StagingPool pool(Memory(kPage));
  auto buffers = pool.Allocate({0, kPage, 0}, Never);
  ASSERT_TRUE(buffers.ok());
  EXPECT_EQ(pool.used_bytes(), kPage);
  EXPECT_EQ((*buffers)[0].bytes(), 0u);
}

TEST(StagingPool, RefusesWhatNeverFitsAndSaysSo) {
  StagingPool pool(Memory(2 * kPage));
  const auto refused = pool.Allocate({kPage, kPage + 1}, [] { return true; });
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(refused.status().message().find("12288"), absl::string_view::npos);
  EXPECT_NE(refused.status().message().find("8192"), absl::string_view::npos);
  EXPECT_EQ(RetryPushbackMs(refused.status()), kNeverRetry);
}

TEST(StagingPool, RefusesWhenFullAndKeepsNothingHalf) {
  StagingPool pool(Memory(3 * kPage));
  auto held = pool.Allocate({2 * kPage}, Never);
  ASSERT_TRUE(held.ok());
  const auto refused = pool.Allocate({kPage, kPage}, Never);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_GT(RetryPushbackMs(refused.status()).value_or(0), 0);
  EXPECT_EQ(pool.used_bytes(), 2 * kPage);
}

TEST(StagingPool, WaitsForAReturn) {
  StagingPool pool(Memory(kPage));
  auto held = pool.Allocate({kPage}, Never);
  ASSERT_TRUE(held.ok());
  absl::Notification waiting;
  std::thread waiter([&] {
    EXPECT_TRUE(pool.Allocate({kPage},
                              [&] {
                                if (!waiting.HasBeenNotified()) waiting.Notify();
                                return true;
                              })
                    .ok());
  });
  waiting.WaitForNotification();
  held->clear();
  waiter.join();
}

TEST(StagingPool, BuffersOutliveThePool) {
  auto pool = std::make_unique<StagingPool>(Memory(kPage));
  auto buffers = pool->Allocate({kPage}, Never);
  ASSERT_TRUE(buffers.ok());
  pool.reset();
  std::memset((*buffers)[0].data(), 7, kPage);
}

TEST(StagingPool, CoalescesBackToOneRangeAfterAnyOrderOfReturns) {
  constexpr size_t kPages = 64;
  StagingPool pool(Memory(kPages * kPage));
  std::mt19937 random(std::random_device{}());
  for (int round = 0; round < 200; ++round) {
    std::vector<StagingBuffers> held;
    for (;;) {
      auto buffers = pool.Allocate({random() % (8 * kPage), random() % (4 * kPage)}, Never);
      if (!buffers.ok()) break;
      held.push_back(*std::move(buffers));
      if (random() % 3 == 0)
        held.erase(held.begin() + static_cast<ptrdiff_t>(random() % held.size()));
    }
    std::shuffle(held.begin(), held.end(), random);
    held.clear();
    ASSERT_EQ(pool.used_bytes(), 0u);
    ASSERT_TRUE(pool.Allocate({kPages * kPage}, Never).ok());
  }
}

TEST(StagingPool, ThreadsNeverShareARange) {
  StagingPool pool(Memory(16 * kPage));
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&pool, t] {
      for (int i = 0; i < 500; ++i) {
        auto buffers = pool.Allocate({2 * kPage, kPage}, [] { return true; });
        ASSERT_TRUE(buffers.ok());
        std::memset((*buffers)[0].data(), t, 2 * kPage);
        for (size_t at = 0; at < 2 * kPage; at += 512) ASSERT_EQ((*buffers)[0].data()[at], t);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(pool.used_bytes(), 0u);
}

}  // namespace
}  // namespace warpcall
