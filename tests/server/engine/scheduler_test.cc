#include "server/engine/scheduler.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "server/engine/refusal.h"
#include "tests/e2e/eventually.h"
#include "tests/server/nanoseconds.h"
#include "tests/thread_rests.h"

namespace warpcall {
namespace {

using testing::Eventually;
using testing::kMillisecond;
using testing::kSecond;
using testing::ThreadRests;

// gRPC rounds a timeout of 1.204 s up to 1.21 s, and a busy machine is late by some more.
TEST(LeftAtDeadlineTest, CountsClientsThatWereSomewhatEarly) {
  constexpr int64_t kBegin = 7'000 * kMillisecond;
  EXPECT_TRUE(LeftAtDeadline(kBegin, kBegin + 500 * kMillisecond, kBegin + 500 * kMillisecond));
  EXPECT_TRUE(LeftAtDeadline(kBegin, kBegin + 500 * kMillisecond, kBegin + 480 * kMillisecond));
  EXPECT_TRUE(LeftAtDeadline(kBegin, kBegin + 1'210 * kMillisecond, kBegin + 1'190 * kMillisecond));
  EXPECT_TRUE(
      LeftAtDeadline(kBegin, kBegin + 60'000 * kMillisecond, kBegin + 59'000 * kMillisecond));
}

TEST(LeftAtDeadlineTest, LeavesThoseThatLeftByThemselves) {
  constexpr int64_t kBegin = 7'000 * kMillisecond;
  EXPECT_FALSE(LeftAtDeadline(kBegin, kNoDeadline, kNoDeadline - 1));
  EXPECT_FALSE(LeftAtDeadline(kBegin, kBegin + 500 * kMillisecond, kBegin + 460 * kMillisecond));
  EXPECT_FALSE(
      LeftAtDeadline(kBegin, kBegin + 1'210 * kMillisecond, kBegin + 1'100 * kMillisecond));
  EXPECT_FALSE(
      LeftAtDeadline(kBegin, kBegin + 60'000 * kMillisecond, kBegin + 56'000 * kMillisecond));
}

// A scheduler of two lanes, with time that a test moves.
class SchedulerTest : public ::testing::Test {
 protected:
  std::unique_ptr<Job> MakeJob(int64_t deadline_ns = kNoDeadline, int64_t bytes = 1) {
    auto job = std::make_unique<Job>();
    job->key = {1, deadline_ns, ++last_id_};
    job->input_bytes = bytes;
    job->cancelled = &cancelled_;
    job->trace = &trace_;
    return job;
  }

  uint64_t Submit(std::unique_ptr<Job> job) {
    const uint64_t id = job->key.id;
    EXPECT_TRUE(scheduler_.Submit(&job).ok());
    return id;
  }

  std::atomic<int64_t> now_ns_{1000};
  Scheduler scheduler_{
      {.limits = {3, 100}, .lanes = 2, .clock = [this] { return now_ns_.load(); }}};
  std::atomic<bool> cancelled_{false};
  RequestTrace trace_;
  uint64_t last_id_ = 0;
};

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
  EXPECT_EQ(RejectReasonOf(own), RejectReason::kDeadlineUnmeetable);
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
  std::unique_ptr<Job> behind_both = measured(now_ns_ + 32'000'000);
  EXPECT_EQ(scheduler_.Submit(&behind_both).code(), absl::StatusCode::kResourceExhausted);
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

// A lane that waits for jobs by the test's clock, which it reads all the time while it spins.
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

// Jobs for which there is no staging memory.
class StarvingTest : public SchedulerTest {
 protected:
  std::unique_ptr<Job> MakeLarge(uint64_t principal, size_t bytes) {
    std::unique_ptr<Job> job = MakeJob();
    job->key.principal = principal;
    job->problem.inputs = {{DataType::kFloat32, {static_cast<int64_t>(bytes / 4)}}};
    return job;
  }

  StagingPool staging_{Buffer(
      std::aligned_alloc(4096, 8 * 4096), 8 * 4096,
      [](void*, void* data, size_t) { std::free(data); }, nullptr)};
  Scheduler scheduler_{{.limits = {10, 1000},
                        .lanes = 1,
                        .clock = [this] { return now_ns_.load(); },
                        .staging = &staging_,
                        .timer = false}};

  uint64_t Submit(std::unique_ptr<Job> job) {
    const uint64_t id = job->key.id;
    EXPECT_TRUE(scheduler_.Submit(&job).ok());
    return id;
  }

  // The status that `job` ends with; OK until then.
  static std::shared_ptr<absl::Status> EndingOf(Job* job) {
    auto ending = std::make_shared<absl::Status>();
    job->done = [ending](absl::Status status, StagingBuffers) { *ending = std::move(status); };
    return ending;
  }

  // Does as the scheduler's timer would in that time.
  void Pass(int64_t ns) {
    for (; ns > 0 && scheduler_.watches(); ns -= Scheduler::kStarvedCheckPeriodNs) {
      scheduler_.EndStarved();
      now_ns_ += Scheduler::kStarvedCheckPeriodNs;
    }
  }
};

TEST_F(StarvingTest, TheTwoSecondsBeginWhenThereIsNoStaging) {
  std::unique_ptr<Job> job = MakeLarge(2, 4096);
  const auto ending = EndingOf(job.get());
  Submit(std::move(job));
  Pass(10 * kSecond);  // every lane is busy
  auto answers = staging_.TryAllocate({8 * 4096}, 1);
  Pass(kSecond);
  answers.reset();  // for a while there is some again
  Pass(Scheduler::kStarvedCheckPeriodNs);
  answers = staging_.TryAllocate({8 * 4096}, 1);
  Scheduler::IdleLane lane;
  EXPECT_EQ(scheduler_.TryNext(&lane).job, nullptr);
  Pass(2 * kSecond);
  EXPECT_TRUE(ending->ok()) << *ending;
  Pass(Scheduler::kStarvedCheckPeriodNs);
  EXPECT_EQ(ending->code(), absl::StatusCode::kResourceExhausted);
}

TEST_F(StarvingTest, ATimerEndsWhatStarves) {
  std::atomic<int64_t> looks{0};  // half a second passes between any two
  Scheduler scheduler({.limits = {10, 1000},
                       .clock = [&] { return ++looks * (kSecond / 2); },
                       .staging = &staging_});
  const auto holder = staging_.TryAllocate({8 * 4096}, 1);
  for (int i = 0; i < 2; ++i) {  // it sleeps before either
    std::unique_ptr<Job> job = MakeLarge(2, 4096);
    absl::Notification ended;
    job->done = [&](absl::Status status, StagingBuffers) {
      EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
      ended.Notify();
    };
    EXPECT_TRUE(scheduler.Submit(&job).ok());
    ended.WaitForNotification();
    while (scheduler.watches()) std::this_thread::yield();
  }
}

TEST_F(StarvingTest, StagingMayComeBackWhenTheSchedulerIsGone) {
  alignas(Scheduler) char place[sizeof(Scheduler)];
  auto* const scheduler = new (place) Scheduler(
      {.limits = {10, 1000}, .clock = [this] { return now_ns_.load(); }, .staging = &staging_});
  const size_t all = 8 * 4096;
  auto answer = staging_.TryAllocate({all}, 1);
  ASSERT_TRUE(answer.has_value());
  EXPECT_FALSE(staging_.TryAllocate({all}, 2).has_value());
  scheduler->~Scheduler();
  std::memset(place, 0xFF, sizeof(place));  // a late caller would crash
  answer.reset();
  EXPECT_EQ(staging_.used_bytes(), 0u);
}

TEST_F(StarvingTest, StagingComesBackWhileSchedulersComeAndGo) {
  std::atomic<bool> stop{false};
  std::thread reader([&] {
    while (!stop) {
      const auto answer = staging_.TryAllocate({8 * 4096}, 1);
      EXPECT_FALSE(staging_.TryAllocate({8 * 4096}, 2).has_value());
    }
  });
  for (int i = 0; i < 200; ++i)
    std::make_unique<Scheduler>(
        SchedulerOptions{.limits = {10, 1000}, .clock = MonotonicNs, .staging = &staging_});
  stop = true;
  reader.join();
}

}  // namespace
}  // namespace warpcall
