#include "server/transport/reference_watch.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace warpcall {
namespace {

constexpr int64_t kPeriodNs = ReferenceWatch::kPeriodNs;

TEST(ReferenceWatch, TheFirstHasALineAndThenOneAMinuteCountsThem) {
  ReferenceWatch watch(2);
  EXPECT_EQ(watch.Count(0, 5), 1);
  EXPECT_EQ(watch.Count(0, 6), 0);
  EXPECT_EQ(watch.Count(0, kPeriodNs + 4), 0);
  EXPECT_EQ(watch.Count(0, kPeriodNs + 5), 3);
  EXPECT_EQ(watch.Count(0, kPeriodNs + 6), 0);
  // After a pause the next line comes at once.
  EXPECT_EQ(watch.Count(0, 10 * kPeriodNs), 2);
}

TEST(ReferenceWatch, EachKernelHasItsOwn) {
  ReferenceWatch watch(2);
  EXPECT_EQ(watch.Count(0, 5), 1);
  EXPECT_EQ(watch.Count(1, 5), 1);
}

TEST(ReferenceWatch, ThreadsAtOneTimeHaveOneLine) {
  constexpr int kThreads = 8;
  ReferenceWatch watch(1);
  std::atomic<int64_t> lines{0}, told{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i)
    threads.emplace_back([&] {
      const int64_t requests = watch.Count(0, 5);
      lines += requests > 0;
      told += requests;
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(lines.load(), 1);
  EXPECT_EQ(told.load() + watch.Count(0, 5 + kPeriodNs), kThreads + 1);
}

}  // namespace
}  // namespace warpcall
