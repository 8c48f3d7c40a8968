#include "server/engine/staging_pool.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "proto/common/check.h"

namespace warpcall {
namespace {

constexpr size_t kPage = StagingPool::kGranuleBytes;

Buffer Memory(size_t bytes) {
  return Buffer(
      std::aligned_alloc(kPage, bytes), bytes, [](void*, void* data, size_t) { std::free(data); },
      nullptr);
}

TEST(StagingPool, HandsOutAlignedRangesThatDoNotOverlap) {
  StagingPool pool(Memory(8 * kPage));
  auto buffers = pool.TryAllocate({1, kPage, kPage + 1}, 0);
  ASSERT_TRUE(buffers.has_value());
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

TEST(StagingPool, HasRoomSaysWhatAnAttemptWouldGetAndTakesNothing) {
  StagingPool pool(Memory(5 * kPage));
  auto first = pool.TryAllocate({2 * kPage, kPage}, 1);
  ASSERT_TRUE(first.has_value());
  first->erase(first->begin());  // two pages, one in use, two pages
  EXPECT_TRUE(pool.HasRoom({2 * kPage, 2 * kPage}, 2));
  EXPECT_FALSE(pool.HasRoom({3 * kPage}, 2));  // no two of them are neighbours
  EXPECT_FALSE(pool.HasRoom({2 * kPage}, 1));  // must leave as much free as one holds
  EXPECT_TRUE(pool.HasRoom({kPage}, 1));
  EXPECT_EQ(pool.used_bytes(), kPage);
}

TEST(StagingPool, TellsOfReturnsThatSomebodyWantsUntilItIsGone) {
  auto pool = std::make_unique<StagingPool>(Memory(kPage));
  int told = 0;
  pool->OnReturn([&] { ++told; });
  auto held = pool->TryAllocate({kPage}, 1);
  held->clear();
  EXPECT_EQ(told, 0);  // nobody went without
  held = pool->TryAllocate({kPage}, 1);
  EXPECT_FALSE(pool->TryAllocate({kPage}, 2).has_value());
  held->clear();
  EXPECT_EQ(told, 1);
  held = pool->TryAllocate({kPage}, 1);
  EXPECT_FALSE(pool->TryAllocate({kPage}, 2).has_value());
  pool.reset();
  held->clear();
  EXPECT_EQ(told, 1);
}

TEST(StagingPool, BuffersOutliveThePool) {
  auto pool = std::make_unique<StagingPool>(Memory(kPage));
  auto buffers = pool->TryAllocate({kPage}, 0);
  ASSERT_TRUE(buffers.has_value());
  pool.reset();
  std::memset((*buffers)[0].data(), 7, kPage);
}

TEST(StagingPool, ThreadsNeverShareARange) {
  StagingPool pool(Memory(16 * kPage));
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&pool, t] {
      // Together they want twelve pages of sixteen, which may lie badly: then one tries again.
      // Until each has had its share; ctest's time limit ends a pool that hands out nothing.
      for (int had = 0; had < 500;) {
        auto buffers = pool.TryAllocate({2 * kPage, kPage}, static_cast<uint64_t>(t));
        if (!buffers.has_value()) {
          std::this_thread::yield();
          continue;
        }
        ++had;
        std::memset((*buffers)[0].data(), t, 2 * kPage);
        std::memset((*buffers)[1].data(), t, kPage);
        std::this_thread::yield();  // for others to write where they must not
        for (const StagingBuffer& buffer : *buffers)
          for (size_t at = 0; at < buffer.bytes(); at += 512) ASSERT_EQ(buffer.data()[at], t);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(pool.used_bytes(), 0u);
}

TEST(StagingPoolDeathTest, TakesMemoryThatIsAlignedToItsGranule) {
  if (!WARPCALL_DCHECK_IS_ON) GTEST_SKIP() << "needs WARPCALL_DCHECK";
  alignas(StagingPool::kGranuleBytes) static char memory[2 * kPage];
  const auto pool_at = [](char* data) {
    StagingPool(Buffer(
        data, kPage, [](void*, void*, size_t) {}, nullptr));
  };
  pool_at(memory);
  EXPECT_DEATH(pool_at(memory + 1), "kGranuleBytes == 0");
}

}  // namespace
}  // namespace warpcall
