// Jobs for which there is no staging memory.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>

#include "absl/synchronization/notification.h"
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

}  // namespace
}  // namespace warpcall
