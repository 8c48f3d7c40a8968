#include "server/judge/launch_watch.h"

#include <gtest/gtest.h>

#include <atomic>

#include "absl/time/clock.h"
#include "proto/common/steady_wait.h"

namespace warpcall::judge {
namespace {

TEST(LaunchWatchTest, TellsOfALaunchThatDoesNotEnd) {
  SteadyNotification expired;
  LaunchWatch watch([&] { expired.Notify(); });
  watch.Begin(absl::Milliseconds(1));
  EXPECT_TRUE(expired.WaitFor(absl::Seconds(60)));
}

TEST(LaunchWatchTest, SaysNothingOfLaunchesThatEnd) {
  std::atomic<int> expired{0};
  {
    LaunchWatch watch([&] { ++expired; });
    for (int i = 0; i < 1000; ++i) {
      watch.Begin(absl::Seconds(60));
      watch.End();
    }
    watch.Begin(absl::Milliseconds(20));
    watch.End();
    absl::SleepFor(absl::Milliseconds(60));
  }
  EXPECT_EQ(expired.load(), 0);
}

TEST(LaunchWatchTest, APauseDoesNotCount) {
  SteadyNotification expired;
  LaunchWatch watch([&] { expired.Notify(); });
  {
    const WatchPause pause(nullptr);  // nobody watches
  }
  watch.Begin(absl::Milliseconds(50));
  {
    const WatchPause pause(&watch);
    EXPECT_FALSE(expired.WaitFor(absl::Milliseconds(200)));
  }
  EXPECT_TRUE(expired.WaitFor(absl::Seconds(60)));
}

}  // namespace
}  // namespace warpcall::judge
