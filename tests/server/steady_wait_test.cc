#include "proto/common/steady_wait.h"

#include <gtest/gtest.h>

#include <thread>

#include "absl/time/time.h"

namespace warpcall {
namespace {

TEST(SteadyWaitTest, WhatIsTooLongToTellNeverComes) {
  for (const absl::Duration timeout : {absl::InfiniteDuration(), absl::Hours(24 * 365 * 1000)})
    EXPECT_EQ(SteadyAfter(timeout), SteadyTime::max());
  EXPECT_GT(UntilSteady(SteadyAfter(absl::Hours(1))), absl::Minutes(59));
  EXPECT_LE(UntilSteady(SteadyAfter(absl::Hours(1))), absl::Hours(1));
  EXPECT_LT(UntilSteady(SteadyAfter(-absl::Hours(1))), -absl::Minutes(59));
}

TEST(SteadyWaitTest, AWaitEndsByItsTimeAndNotBefore) {
  const SteadyTime end = SteadyAfter(absl::Milliseconds(20));
  absl::Mutex mutex;
  SteadyCondVar changed;
  absl::MutexLock lock(&mutex);
  while (!changed.WaitUntil(&mutex, end)) {
  }
  mutex.AssertHeld();
  EXPECT_LE(UntilSteady(end), absl::ZeroDuration());
}

TEST(SteadyWaitTest, AWaitEndsByASignal) {
  absl::Mutex mutex;
  SteadyCondVar changed;
  bool ready = false;
  bool seen = false;
  std::thread other([&] {
    absl::MutexLock lock(&mutex);
    while (!ready)
      if (changed.WaitUntil(&mutex, SteadyAfter(absl::InfiniteDuration()))) return;
    seen = true;
    changed.Signal();
  });
  {
    absl::MutexLock lock(&mutex);
    ready = true;
    changed.SignalAll();
    while (!seen) changed.Wait(&mutex);
  }
  other.join();
  EXPECT_TRUE(seen);
}

TEST(SteadyWaitTest, ANotificationIsSeenWhenItCameAndWhenItComes) {
  SteadyNotification notification;
  EXPECT_FALSE(notification.WaitFor(absl::Milliseconds(1)));
  std::thread other([&] { notification.Notify(); });
  EXPECT_TRUE(notification.WaitFor(absl::InfiniteDuration()));
  other.join();
  EXPECT_TRUE(notification.WaitFor(absl::ZeroDuration()));
}

}  // namespace
}  // namespace warpcall
