#include "server/engine/scheduler.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "server/engine/retry_pushback.h"
#include "tests/e2e/eventually.h"
#include "tests/server/engine/scheduler_fixture.h"
#include "tests/thread_rests.h"

namespace warpcall {
namespace {

using testing::Eventually;
using testing::SchedulerTest;
using testing::ThreadRests;

TEST_F(SchedulerTest, RefusesADeadlineThatMeasuredWorkRulesOut) {
  const auto measured = [this](int64_t deadline_ns) {
    std::unique_ptr<Job> job = MakeJob(deadline_ns);
    job->predicted_ns = 10'000'000;
    job->prediction_measured = true;
    return job;
  };
  std::unique_ptr<Job> too_slow = measured(now_ns_ + 9'000'000);
  const absl::Status own = scheduler_.Submit(&too_slow);
  EXPECT_EQ(own.code(), absl::StatusCode::kDeadlineExceeded) << own;
  EXPECT_EQ(RetryPushbackMs(own), kNeverRetry);
  EXPECT_EQ(trace_.reject_reason, RejectReason::kDeadlineUnmeetable);
  Submit(measured(now_ns_ + 30'000'000));
  Submit(measured(now_ns_ + 30'000'000));
  std::unique_ptr<Job> behind = measured(now_ns_ + 31'000'000 - 12'000'000);
  EXPECT_TRUE(scheduler_.Submit(&behind).ok());  // goes before both
  scheduler_.Next();
  std::unique_ptr<Job> last = measured(now_ns_ + 30'000'000);
  EXPECT_TRUE(scheduler_.Submit(&last).ok());  // two lanes: 15 ms come first
  scheduler_.Next();
  scheduler_.Next();
  std::unique_ptr<Job> late = measured(now_ns_ + 22'000'000);
  EXPECT_EQ(scheduler_.Submit(&late).code(), absl::StatusCode::kResourceExhausted);
  late = measured(now_ns_ + 28'000'000);
  EXPECT_TRUE(scheduler_.Submit(&late).ok());
  std::unique_ptr<Job> guessed = measured(now_ns_ + 1'000'000);
  guessed->prediction_measured = false;
  EXPECT_TRUE(scheduler_.Submit(&guessed).ok());
}

TEST_F(SchedulerTest, ALaneThatSpinsFindsItsWorkAndOthersAreCalledForTheRest) {
  Scheduler scheduler({.limits = {100, 1000}, .lanes = 2, .spin_ns = 50'000'000});
  std::atomic<int> taken{0};
  std::vector<std::thread> lanes;
  for (int i = 0; i < 2; ++i)
    lanes.emplace_back([&] {
      while (scheduler.Next() != nullptr) ++taken;
    });
  for (int i = 1; i <= 200; ++i) {
    std::unique_ptr<Job> job = MakeJob();
    EXPECT_TRUE(scheduler.Submit(&job).ok());
    while (i % 2 == 0 && taken < i) std::this_thread::yield();
  }
  scheduler.Close();
  for (std::thread& lane : lanes) lane.join();
  EXPECT_EQ(taken, 200);
}

// Lets a lane wait for jobs by a clock of the test's, which it asks all the time while it spins.
class SpinningLane {
 public:
  ~SpinningLane() {
    now_ns_ = kNoDeadline;  // ends a spin
    scheduler_.Close();
    thread_.join();
  }

  // Hands the lane a job at `now_ns` and returns once it has taken it and spins for the next.
  void Give(int64_t now_ns, std::unique_ptr<Job> job) {
    now_ns_ = now_ns;
    const int before = taken_;
    EXPECT_TRUE(scheduler_.Submit(&job).ok());
    while (taken_ == before) std::this_thread::yield();
    AwaitSpin();
  }
  // Until the clock is asked again and again, by then at least once of the time that it shows.
  void AwaitSpin() {
    const int64_t before = looks_;
    EXPECT_TRUE(Eventually([&] { return looks_ > before + 2; }));
  }
  void AwaitSleep(int64_t now_ns) {
    now_ns_ = now_ns;
    EXPECT_TRUE(Eventually([&] { return ThreadRests(tid_); }));
  }
  void SetTime(int64_t now_ns) { now_ns_ = now_ns; }

 private:
  std::atomic<int64_t> now_ns_{0};
  std::atomic<int64_t> looks_{0};
  std::atomic<int> taken_{0};
  std::atomic<pid_t> tid_{0};
  Scheduler scheduler_{{.limits = {100, 1000}, .lanes = 1, .spin_ns = 1000, .clock = [this] {
                          ++looks_;
                          return now_ns_.load();
                        }}};
  std::thread thread_{[this] {
    tid_ = gettid();
    while (scheduler_.Next() != nullptr) ++taken_;
  }};
};

TEST_F(SchedulerTest, ALaneSpinsForLongOnlyWhileWorkComesBackSoon) {
  SpinningLane lane;
  lane.Give(100'000, MakeJob());
  lane.SetTime(100'900);
  lane.AwaitSpin();
  lane.AwaitSleep(101'100);
  lane.Give(105'000, MakeJob());  // comes late: the next is looked for for 200 only
  lane.AwaitSleep(105'300);
  lane.Give(105'800, MakeJob());  // comes within 1000
  lane.SetTime(106'700);
  lane.AwaitSpin();
}

}  // namespace
}  // namespace warpcall
