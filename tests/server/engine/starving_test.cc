// Jobs for which there is no staging memory.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
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
                        .staging = &staging_}};

  uint64_t Submit(std::unique_ptr<Job> job) {
    const uint64_t id = job->key.id;
    EXPECT_TRUE(scheduler_.Submit(&job).ok());
    return id;
  }

  // How a job ended.
  class Ending {
   public:
    explicit Ending(Job* job) {
      job->done = [this](absl::Status status, StagingBuffers) {
        absl::MutexLock lock(&mutex_);
        status_ = std::move(status);
        ended_.Signal();
      };
    }
    bool AwaitFor(absl::Duration timeout) {
      absl::MutexLock lock(&mutex_);
      if (!status_.has_value()) ended_.WaitWithDeadline(&mutex_, absl::Now() + timeout);
      return status_.has_value();
    }
    absl::Status status() {
      absl::MutexLock lock(&mutex_);
      return status_.value_or(absl::UnknownError("not yet"));
    }

   private:
    absl::Mutex mutex_;
    absl::CondVar ended_;
    std::optional<absl::Status> status_ ABSL_GUARDED_BY(mutex_);
  };

  // Time goes on until the job has ended. False when that takes ten seconds of real time.
  bool PassTimeUntil(Ending* job) {
    for (int i = 0; i < 1000; ++i) {
      now_ns_ += 500'000'000;
      if (job->AwaitFor(absl::Milliseconds(10))) return true;
    }
    return false;
  }
};

TEST_F(StarvingTest, AJobWithoutStagingLetsOthersPassAndGoesOnWhenThereIsSome) {
  Submit(MakeLarge(1, 6 * 4096));
  std::unique_ptr<Job> holder = scheduler_.Next();
  const uint64_t starving = Submit(MakeLarge(2, 3 * 4096));
  const uint64_t behind = Submit(MakeLarge(2, 4));  // of the same connection: keeps its place
  const uint64_t passing = Submit(MakeLarge(3, 4096));
  EXPECT_EQ(scheduler_.Next()->key.id, passing);
  std::thread lane([&] {
    EXPECT_EQ(scheduler_.Next()->key.id, starving);
    EXPECT_EQ(scheduler_.Next()->key.id, behind);
  });
  holder.reset();
  lane.join();
}

TEST_F(StarvingTest, WhatStarvesTooLongIsRefused) {
  Submit(MakeLarge(1, 8 * 4096));
  const std::unique_ptr<Job> holder = scheduler_.Next();
  std::unique_ptr<Job> job = MakeLarge(2, 4096);
  Ending ending(job.get());
  Submit(std::move(job));
  std::thread lane([&] { EXPECT_EQ(scheduler_.Next(), nullptr); });
  EXPECT_TRUE(PassTimeUntil(&ending));
  EXPECT_EQ(ending.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(trace_.reject_reason, RejectReason::kStagingBytes);
  EXPECT_EQ(RetryPushbackMs(ending.status()), 100);
  scheduler_.Close();
  lane.join();
}

TEST_F(StarvingTest, WhatStarvesTooLongIsRefusedWhileEveryLaneIsBusy) {
  Submit(MakeLarge(1, 8 * 4096));
  const std::unique_ptr<Job> running = scheduler_.Next();  // and nobody asks for more
  std::unique_ptr<Job> job = MakeLarge(2, 4096);
  Ending ending(job.get());
  Submit(std::move(job));
  ASSERT_TRUE(PassTimeUntil(&ending));
  EXPECT_EQ(ending.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(trace_.reject_reason, RejectReason::kStagingBytes);
  EXPECT_EQ(scheduler_.Snapshot().depth, 0);
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
  Ending ending(job.get());
  Submit(std::move(job));
  ASSERT_TRUE(PassTimeUntil(&ending));  // the last one, for which there still is no room
  EXPECT_NE(scheduler_.Remove({2, kNoDeadline, kept}), nullptr);
}

TEST_F(StarvingTest, LanesLeaveWhenTheLastThatStarvedIsGone) {
  Submit(MakeLarge(1, 8 * 4096));
  std::unique_ptr<Job> holder = scheduler_.Next();
  const uint64_t cancelled = Submit(MakeLarge(2, 4096));
  const uint64_t starving = Submit(MakeLarge(3, 4096));
  std::atomic<int> taken{0};
  std::vector<std::thread> lanes;
  for (int i = 0; i < 3; ++i)
    lanes.emplace_back([&] {
      while (scheduler_.Next() != nullptr) ++taken;
    });
  scheduler_.Close();
  EXPECT_NE(scheduler_.Remove({2, kNoDeadline, cancelled}), nullptr);
  EXPECT_NE(scheduler_.Remove({3, kNoDeadline, starving}), nullptr);
  for (std::thread& lane : lanes) lane.join();
  EXPECT_EQ(taken, 0);
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
