// Jobs for which there is no staging memory.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>

#include "absl/synchronization/notification.h"
#include "server/engine/retry_pushback.h"
#include "server/engine/scheduler.h"
#include "tests/server/engine/scheduler_fixture.h"

namespace warpcall {
namespace {

class StarvingTest : public testing::SchedulerTest {
 protected:
  std::unique_ptr<Job> MakeLarge(uint64_t connection, size_t bytes) {
    std::unique_ptr<Job> job = MakeJob();
    job->key.connection = connection;
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
                        .thread = false}};

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

  // What the scheduler's thread would do in so long a time.
  void Pass(int64_t ns) {
    for (; ns > 0 && scheduler_.watches(); ns -= Scheduler::kStarvedCheckPeriodNs) {
      scheduler_.EndStarved();
      now_ns_ += Scheduler::kStarvedCheckPeriodNs;
    }
  }
  static constexpr int64_t kSecond = 1'000'000'000;
};

TEST_F(StarvingTest, AJobWithoutStagingLetsOthersPassAndGoesOnWhenThereIsSome) {
  Submit(MakeLarge(1, 6 * 4096));
  std::unique_ptr<Job> holder = scheduler_.Next();
  const uint64_t starving = Submit(MakeLarge(2, 3 * 4096));
  const uint64_t behind = Submit(MakeLarge(2, 4));  // of the same connection: keeps its place
  const uint64_t passing = Submit(MakeLarge(3, 4096));
  EXPECT_EQ(scheduler_.Next()->key.id, passing);
  Scheduler::IdleLane lane;
  EXPECT_EQ(scheduler_.TryNext(&lane).job, nullptr);
  EXPECT_TRUE(lane.sleeps);
  holder.reset();
  EXPECT_FALSE(lane.sleeps);
  EXPECT_EQ(scheduler_.TryNext(&lane).job->key.id, starving);
  EXPECT_EQ(scheduler_.Next()->key.id, behind);
}

TEST_F(StarvingTest, WhatStarvesForTwoSecondsIsRefused) {
  Submit(MakeLarge(1, 8 * 4096));
  const std::unique_ptr<Job> running = scheduler_.Next();  // and nobody asks for more
  std::unique_ptr<Job> job = MakeLarge(2, 4096);
  const auto ending = EndingOf(job.get());
  Submit(std::move(job));
  Pass(2 * kSecond);
  EXPECT_TRUE(ending->ok()) << *ending;
  Pass(Scheduler::kStarvedCheckPeriodNs);
  EXPECT_EQ(ending->code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(trace_.reject_reason, RejectReason::kStagingBytes);
  EXPECT_EQ(RetryPushbackMs(*ending), 100);
  EXPECT_EQ(scheduler_.Snapshot().depth, 0);
  EXPECT_FALSE(scheduler_.watches());
}

TEST_F(StarvingTest, TheTwoSecondsBeginWhenThereIsNoStaging) {
  std::unique_ptr<Job> job = MakeLarge(2, 4096);
  const auto ending = EndingOf(job.get());
  Submit(std::move(job));
  Pass(10 * kSecond);  // every lane is busy
  const auto answers = staging_.TryAllocate({8 * 4096}, 1);
  Pass(2 * kSecond);
  EXPECT_TRUE(ending->ok()) << *ending;
  Pass(Scheduler::kStarvedCheckPeriodNs);
  EXPECT_EQ(ending->code(), absl::StatusCode::kResourceExhausted);
}

TEST_F(StarvingTest, AThreadOfTheSchedulersOwnEndsWhatStarves) {
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

TEST_F(StarvingTest, WhatHasStagingAndOnlyWaitsForALaneIsKept) {
  Submit(MakeLarge(1, 8 * 4096));
  std::unique_ptr<Job> holder = scheduler_.Next();
  const uint64_t kept = Submit(MakeLarge(2, 4096));
  const uint64_t passing = Submit(MakeLarge(3, 0));
  EXPECT_EQ(scheduler_.Next()->key.id, passing);  // the first was asked, and starved
  holder.reset();
  const auto answer = staging_.TryAllocate({4096}, 1);
  std::unique_ptr<Job> job = MakeLarge(4, 8 * 4096);
  const auto ending = EndingOf(job.get());
  Submit(std::move(job));
  Pass(3 * kSecond);
  // The last one, for which there still is no room.
  EXPECT_EQ(ending->code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(scheduler_.Remove({2, kNoDeadline, kept}), nullptr);
}

TEST_F(StarvingTest, WhatStoodBehindOneThatIsCancelledIsTakenAtOnce) {
  Submit(MakeLarge(1, 6 * 4096));
  const std::unique_ptr<Job> holder = scheduler_.Next();
  const uint64_t starving = Submit(MakeLarge(2, 3 * 4096));
  const uint64_t behind = Submit(MakeLarge(2, 4096));
  Scheduler::IdleLane lane;
  EXPECT_EQ(scheduler_.TryNext(&lane).job, nullptr);
  EXPECT_NE(scheduler_.Remove({2, kNoDeadline, starving}), nullptr);
  ASSERT_FALSE(lane.sleeps);
  EXPECT_EQ(scheduler_.TryNext(&lane).job->key.id, behind);
}

TEST_F(StarvingTest, WhatStoodBehindOneThatIsRefusedIsTakenAtOnce) {
  Submit(MakeLarge(1, 6 * 4096));
  const std::unique_ptr<Job> holder = scheduler_.Next();
  std::unique_ptr<Job> starving = MakeLarge(2, 3 * 4096);
  const auto ending = EndingOf(starving.get());
  Submit(std::move(starving));
  Pass(kSecond);
  const uint64_t behind = Submit(MakeLarge(2, 4096));
  Scheduler::IdleLane lane;
  EXPECT_EQ(scheduler_.TryNext(&lane).job, nullptr);
  Pass(kSecond + Scheduler::kStarvedCheckPeriodNs);
  EXPECT_EQ(ending->code(), absl::StatusCode::kResourceExhausted);
  ASSERT_FALSE(lane.sleeps);
  EXPECT_EQ(scheduler_.TryNext(&lane).job->key.id, behind);
}

// Once one lane has long work, the other is for short work: which then passes long work.
TEST_F(StarvingTest, WhatTurnsOutToBeLongLetsShortWorkPassLongWorkThatStarves) {
  Scheduler scheduler({.limits = {10, 1000},
                       .lanes = 2,
                       .clock = [this] { return now_ns_.load(); },
                       .staging = &staging_,
                       .thread = false});
  const auto submit = [&](std::unique_ptr<Job> job) { EXPECT_TRUE(scheduler.Submit(&job).ok()); };
  submit(MakeLarge(1, 6 * 4096));
  const std::unique_ptr<Job> deceptive = scheduler.Next();
  std::unique_ptr<Job> starving = MakeLarge(2, 3 * 4096);
  starving->predicted_ns_at_most = 10 * kSecond;
  submit(std::move(starving));
  std::unique_ptr<Job> small = MakeLarge(2, 4096);
  const uint64_t behind = small->key.id;
  submit(std::move(small));
  Scheduler::IdleLane lane;
  EXPECT_EQ(scheduler.TryNext(&lane).job, nullptr);
  now_ns_ += kSecond;
  scheduler.EndStarved();
  ASSERT_FALSE(lane.sleeps);
  EXPECT_EQ(scheduler.TryNext(&lane).job->key.id, behind);
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
  std::memset(place, 0xFF, sizeof(place));  // whoever still calls it stumbles
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

TEST_F(StarvingTest, MoreThanThereIsIsRefusedAtOnce) {
  std::unique_ptr<Job> job = MakeLarge(1, 9 * 4096);
  const absl::Status status = scheduler_.Submit(&job);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(status.message().find("36864 bytes"), absl::string_view::npos) << status;
  EXPECT_NE(status.message().find("32768 bytes (staging_mib)"), absl::string_view::npos) << status;
  EXPECT_EQ(RetryPushbackMs(status), kNeverRetry);
}

}  // namespace
}  // namespace warpcall
