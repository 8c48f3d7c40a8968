#include "server/system/housekeeper.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace warpcall {
namespace {

TEST(HousekeeperTest, WorkIsDoneOnceAfterEachStart) {
  std::atomic<int> done{0};
  absl::Notification once, twice;
  Timer timer("test", [&] { (++done == 1 ? once : twice).Notify(); });
  timer.Start(absl::ZeroDuration());
  once.WaitForNotification();
  timer.Start(absl::Milliseconds(1));
  twice.WaitForNotification();
  timer.Stop();
  EXPECT_EQ(done.load(), 2);
}

TEST(HousekeeperTest, APeriodBringsItAgainUntilItStops) {
  std::atomic<int> done{0};
  absl::Notification third;
  Timer timer(
      "test",
      [&] {
        if (++done == 3) third.Notify();
      },
      absl::Microseconds(1));
  timer.Start(absl::ZeroDuration());
  third.WaitForNotification();
  timer.Stop();
  const int stopped = done.load();
  timer.Start(absl::ZeroDuration());
  absl::Notification later;
  RunLater("test", absl::ZeroDuration(), [&] { later.Notify(); });
  later.WaitForNotification();
  EXPECT_EQ(done.load(), stopped);
}

TEST(HousekeeperTest, ASoonerStartCountsAndALaterOneDoesNot) {
  absl::Notification done;
  Timer timer("test", [&] { done.Notify(); });
  timer.Start(absl::Hours(1));
  timer.Start(absl::ZeroDuration());
  done.WaitForNotification();
  absl::Notification again;
  Timer other("test", [&] { again.Notify(); });
  other.Start(absl::Milliseconds(1));
  other.Start(absl::Hours(1));
  again.WaitForNotification();
}

TEST(HousekeeperTest, TheOneThatIsDueFirstGoesFirst) {
  std::string order;  // the housekeeper's until the last is done
  absl::Notification begun, go, done;
  Timer holder("test", [&] {
    begun.Notify();
    go.WaitForNotification();
  });
  holder.Start(absl::ZeroDuration());
  begun.WaitForNotification();
  RunLater("test", absl::Milliseconds(2), [&] {
    order += 'b';
    done.Notify();
  });
  RunLater("test", absl::Milliseconds(1), [&] { order += 'a'; });
  go.Notify();
  done.WaitForNotification();
  EXPECT_EQ(order, "ab");
}

// Objects that the work uses may be destroyed once Stop has returned.
TEST(HousekeeperTest, StopWaitsForWorkUnderWay) {
  absl::Notification begun;
  std::atomic<bool> ended{false};
  auto timer = std::make_unique<Timer>("test", [&] {
    begun.Notify();
    for (int i = 0; i < 1000; ++i) std::this_thread::yield();
    ended = true;
  });
  timer->Start(absl::ZeroDuration());
  begun.WaitForNotification();
  timer.reset();
  EXPECT_TRUE(ended.load());
}

TEST(HousekeeperTest, WorkMayStartItsOwnTimerAgain) {
  int done = 0;
  absl::Notification third;
  Timer* self = nullptr;
  Timer timer("test", [&] {
    if (++done == 3) return third.Notify();
    self->Start(absl::ZeroDuration());
  });
  self = &timer;
  timer.Start(absl::ZeroDuration());
  third.WaitForNotification();
}

TEST(HousekeeperDeathTest, WorkThatStopsItsOwnTimerWouldWaitForItself) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        Timer* self = nullptr;
        Timer timer("test", [&] { self->Stop(); });
        self = &timer;
        timer.Start(absl::ZeroDuration());
        absl::SleepFor(absl::Minutes(1));
      },
      "invariant broken at .*housekeeper.cc");
}

}  // namespace
}  // namespace warpcall
