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

TEST_F(SchedulerTest, EarliestDeadlineFirstThenFirstCome) {
  const uint64_t late = Submit(MakeJob());
  const uint64_t second = Submit(MakeJob(5000));
  scheduler_.Next();
  const uint64_t first = Submit(MakeJob(4000));
  const uint64_t later = Submit(MakeJob());
  EXPECT_EQ(scheduler_.Next()->key.id, first);
  EXPECT_EQ(scheduler_.Next()->key.id, late);
  EXPECT_EQ(scheduler_.Next()->key.id, later);
  EXPECT_LT(late, second);
}

TEST_F(SchedulerTest, RefusesOverTheRequestLimitAndLeavesTheJob) {
  for (int i = 0; i < 3; ++i) Submit(MakeJob());
  std::unique_ptr<Job> job = MakeJob();
  const absl::Status status = scheduler_.Submit(&job);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(status.message().find("limit is 3"), absl::string_view::npos) << status;
  EXPECT_GT(RetryPushbackMs(status).value_or(0), 0);
  EXPECT_EQ(trace_.reject_reason, RejectReason::kQueueRequests);
  ASSERT_NE(job, nullptr);
  scheduler_.Next();
  EXPECT_TRUE(scheduler_.Submit(&job).ok());
}

TEST_F(SchedulerTest, RefusesOverTheByteLimit) {
  Submit(MakeJob(kNoDeadline, 60));
  std::unique_ptr<Job> job = MakeJob(kNoDeadline, 41);
  absl::Status status = scheduler_.Submit(&job);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(status.message().find("100 bytes"), absl::string_view::npos) << status;
  EXPECT_EQ(trace_.reject_reason, RejectReason::kQueueBytes);
  Submit(MakeJob(kNoDeadline, 40));
  std::unique_ptr<Job> hopeless = MakeJob(kNoDeadline, 101);
  EXPECT_EQ(RetryPushbackMs(scheduler_.Submit(&hopeless)), kNeverRetry);
}

TEST_F(SchedulerTest, RetryHintIsThePredictedWorkSharedByTheLanes) {
  const auto slow = [this] {
    std::unique_ptr<Job> job = MakeJob();
    job->predicted_ns = 200'000'000;
    return job;
  };
  Submit(slow());
  const std::unique_ptr<Job> running = scheduler_.Next();
  for (int i = 0; i < 3; ++i) Submit(slow());
  std::unique_ptr<Job> job = slow();
  EXPECT_EQ(RetryPushbackMs(scheduler_.Submit(&job)), 400);
  now_ns_ += 100'000'000;  // half of what runs is done
  EXPECT_EQ(RetryPushbackMs(scheduler_.Submit(&job)), 350);
  scheduler_.Finished(running->key.id);
  EXPECT_EQ(RetryPushbackMs(scheduler_.Submit(&job)), 300);
}

TEST_F(SchedulerTest, RefusesOverTheLimitOfPredictedWorkUnlessItIsAlone) {
  Scheduler scheduler(
      {.limits = {10, 100, 5'000'000}, .lanes = 1, .clock = [this] { return now_ns_.load(); }});
  std::unique_ptr<Job> job = MakeJob();
  job->predicted_ns = 9'000'000;
  EXPECT_TRUE(scheduler.Submit(&job).ok());
  job = MakeJob();
  job->predicted_ns = 1'000'000;
  const absl::Status status = scheduler.Submit(&job);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(status.message().find("9 ms of predicted work"), absl::string_view::npos) << status;
  EXPECT_NE(status.message().find("5 ms (queue_seconds)"), absl::string_view::npos) << status;
  EXPECT_EQ(RetryPushbackMs(status), 9);
  EXPECT_EQ(trace_.reject_reason, RejectReason::kQueueWork);
}

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

TEST_F(SchedulerTest, AFullQueueMakesRoomForAConnectionThatHoldsLess) {
  absl::Status displaced;
  RequestTrace displaced_trace;
  for (int i = 0; i < 3; ++i) {
    std::unique_ptr<Job> job = MakeJob();
    job->trace = &displaced_trace;
    job->done = [&](absl::Status status, StagingBuffers) { displaced = std::move(status); };
    Submit(std::move(job));
  }
  std::unique_ptr<Job> other = MakeJob();
  other->key.connection = 2;
  const uint64_t id = other->key.id;
  EXPECT_TRUE(scheduler_.Submit(&other).ok());
  EXPECT_EQ(displaced.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_GT(RetryPushbackMs(displaced).value_or(0), 0);
  EXPECT_EQ(displaced_trace.reject_reason, RejectReason::kQueueRequests);
  EXPECT_EQ(trace_.reject_reason, RejectReason::kNone);
  EXPECT_EQ(scheduler_.Snapshot().depth, 3);
  // 2 : 1 now. One more would hold as much as the other, which does not make room for that.
  std::unique_ptr<Job> second = MakeJob();
  second->key.connection = 2;
  EXPECT_EQ(scheduler_.Submit(&second).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(scheduler_.Remove({2, kNoDeadline, id}), nullptr);
}

// Says the same as Submit whenever it refuses; and it refuses whenever Submit is sure to.
TEST_F(SchedulerTest, RoomIsDeniedBeforehandOnlyToThoseWhoWouldBeRefused) {
  const auto job_of = [this](uint64_t connection) {
    std::unique_ptr<Job> job = MakeJob();
    job->key.connection = connection;
    return job;
  };
  EXPECT_TRUE(scheduler_.CheckRoomFor(1).ok());
  Submit(job_of(1));
  Submit(job_of(1));
  EXPECT_TRUE(scheduler_.CheckRoomFor(1).ok());
  Submit(job_of(2));
  std::unique_ptr<Job> third = job_of(1);
  const absl::Status denied = scheduler_.CheckRoomFor(1);
  EXPECT_EQ(denied, scheduler_.Submit(&third));
  EXPECT_EQ(denied.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_GT(RetryPushbackMs(denied).value_or(0), 0);
  // It would hold as many as the one that holds most: no more room for it than for that one.
  EXPECT_FALSE(scheduler_.CheckRoomFor(2).ok());
  // A connection that holds nothing gets a place at another's cost, or none is needed.
  EXPECT_TRUE(scheduler_.CheckRoomFor(3).ok());
  scheduler_.Next();
  EXPECT_TRUE(scheduler_.CheckRoomFor(1).ok());
  Submit(std::move(third));
  EXPECT_FALSE(scheduler_.CheckRoomFor(1).ok());
  scheduler_.Refuse();
  EXPECT_TRUE(scheduler_.CheckRoomFor(1).ok()) << "a draining server has something else to say";
}

TEST_F(SchedulerTest, RoomIsNotDeniedToWhoeverHoldsLessThanAnother) {
  Scheduler scheduler({.limits = {4, 100}, .lanes = 2, .clock = [this] { return now_ns_.load(); }});
  for (const uint64_t connection : {1, 1, 1, 2}) {
    std::unique_ptr<Job> job = MakeJob();
    job->key.connection = connection;
    EXPECT_TRUE(scheduler.Submit(&job).ok());
  }
  EXPECT_FALSE(scheduler.CheckRoomFor(1).ok());
  EXPECT_TRUE(scheduler.CheckRoomFor(2).ok());
}

class LongWorkTest : public SchedulerTest {
 protected:
  uint64_t SubmitOf(uint64_t connection, int64_t ns_at_most, int64_t deadline_ns = kNoDeadline) {
    std::unique_ptr<Job> job = MakeJob(deadline_ns);
    job->key.connection = connection;
    job->predicted_ns_at_most = ns_at_most;
    return Submit(std::move(job));
  }
  static constexpr int64_t kLong = 10'000'000'000;
  static constexpr int64_t kShort = 10'000'000;
};

TEST_F(LongWorkTest, OneLaneIsKeptForShortWorkThoughNobodyElseWaits) {
  const uint64_t first = SubmitOf(1, kLong, 5000);
  const uint64_t second = SubmitOf(1, kLong);
  EXPECT_EQ(scheduler_.Next()->key.id, first);
  Scheduler::IdleLane lane;
  EXPECT_EQ(scheduler_.TryNext(&lane).job, nullptr);
  const uint64_t other = SubmitOf(2, kShort);
  EXPECT_FALSE(lane.sleeps);
  EXPECT_EQ(scheduler_.TryNext(&lane).job->key.id, other);
  scheduler_.Finished(first);
  EXPECT_EQ(scheduler_.Next()->key.id, second);
}

TEST_F(LongWorkTest, ShortWorkOfTheSameConnectionPassesToo) {
  const uint64_t first = SubmitOf(1, kLong, 5000);
  SubmitOf(1, kLong);
  const uint64_t behind = SubmitOf(1, kShort);
  EXPECT_EQ(scheduler_.Next()->key.id, first);
  EXPECT_EQ(scheduler_.Next()->key.id, behind);
}

TEST_F(LongWorkTest, WhatHasTurnedOutToBeLongCountsAsLong) {
  const uint64_t deceptive = SubmitOf(1, kShort, 1'000'000'000'000);
  const uint64_t second = SubmitOf(2, kLong);
  EXPECT_EQ(scheduler_.Next()->key.id, deceptive);
  now_ns_ += 1'000'000'000;
  const uint64_t small = SubmitOf(3, kShort);
  EXPECT_EQ(scheduler_.Next()->key.id, small);
  scheduler_.Finished(deceptive);
  EXPECT_EQ(scheduler_.Next()->key.id, second);
}

TEST_F(LongWorkTest, ASingleLaneTakesAnything) {
  Scheduler scheduler(
      {.limits = {10, 100}, .lanes = 1, .clock = [this] { return now_ns_.load(); }});
  std::unique_ptr<Job> job = MakeJob();
  job->predicted_ns_at_most = kLong;
  EXPECT_TRUE(scheduler.Submit(&job).ok());
  EXPECT_NE(scheduler.Next(), nullptr);
}

TEST_F(SchedulerTest, WhoMakesRoomIsToldItsOwnNumbers) {
  absl::Status displaced;
  for (const int64_t bytes : {11, 60}) {
    std::unique_ptr<Job> job = MakeJob(kNoDeadline, bytes);
    job->done = [&](absl::Status status, StagingBuffers) { displaced = std::move(status); };
    Submit(std::move(job));
  }
  std::unique_ptr<Job> newcomer = MakeJob(kNoDeadline, 33);
  newcomer->key.connection = 2;
  EXPECT_TRUE(scheduler_.Submit(&newcomer).ok());
  const std::string told(displaced.message());
  EXPECT_NE(told.find("makes room"), std::string::npos) << told;
  EXPECT_NE(told.find("71 bytes waiting, 60 of them this request's, the limit is 100 bytes"),
            std::string::npos)
      << told;
}

TEST_F(SchedulerTest, WhoFindsNoRoomIsToldWhatWaitsWhoeverWasAsked) {
  const auto submit = [this](uint64_t connection, int64_t bytes) {
    std::unique_ptr<Job> job = MakeJob(kNoDeadline, bytes);
    job->key.connection = connection;
    return scheduler_.Submit(&job);
  };
  EXPECT_TRUE(submit(1, 30).ok());
  EXPECT_TRUE(submit(1, 30).ok());
  EXPECT_TRUE(submit(2, 35).ok());
  // The first connection makes room for the request, but not for its bytes: it keeps its place.
  const absl::Status refused = submit(3, 55);
  EXPECT_NE(refused.message().find("95 bytes waiting and 55 more to come, the limit is 100 bytes"),
            absl::string_view::npos)
      << refused;
  EXPECT_EQ(trace_.reject_reason, RejectReason::kQueueBytes);
  EXPECT_EQ(scheduler_.Snapshot().bytes, 95);
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

TEST_F(SchedulerTest, PassLetsInOnlyWhenNothingOfTheConnectionWaits) {
  EXPECT_TRUE(*scheduler_.Pass(*MakeJob()));
  Submit(MakeJob());
  EXPECT_FALSE(*scheduler_.Pass(*MakeJob()));
  const std::unique_ptr<Job> other = MakeJob();
  other->key.connection = 2;
  EXPECT_TRUE(*scheduler_.Pass(*other));
  EXPECT_EQ(scheduler_.Pass(*MakeJob(1)).status().code(), absl::StatusCode::kDeadlineExceeded);
  scheduler_.Close();
  EXPECT_EQ(scheduler_.Pass(*MakeJob()).status().code(), absl::StatusCode::kUnavailable);
}

TEST_F(SchedulerTest, RefusesWhatNobodyWaitsForAnyMore) {
  std::unique_ptr<Job> late = MakeJob(1000);
  EXPECT_EQ(scheduler_.Submit(&late).code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(trace_.reject_reason, RejectReason::kDeadline);
  cancelled_ = true;
  std::unique_ptr<Job> cancelled = MakeJob();
  EXPECT_EQ(scheduler_.Submit(&cancelled).code(), absl::StatusCode::kCancelled);
}

TEST_F(SchedulerTest, RemoveTakesBackOnlyWhatWaits) {
  const uint64_t id = Submit(MakeJob(5000, 7));
  EXPECT_EQ(scheduler_.Remove({1, 5000, id + 1}), nullptr);
  ASSERT_NE(scheduler_.Remove({1, 5000, id}), nullptr);
  EXPECT_EQ(scheduler_.Remove({1, 5000, id}), nullptr);
  EXPECT_EQ(scheduler_.Snapshot().bytes, 0);
}

TEST_F(SchedulerTest, CloseHandsOutWhatWaitsThenEnds) {
  Submit(MakeJob());
  scheduler_.Close();
  std::unique_ptr<Job> job = MakeJob();
  EXPECT_EQ(scheduler_.Submit(&job).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(trace_.reject_reason, RejectReason::kDraining);
  EXPECT_NE(scheduler_.Next(), nullptr);
  EXPECT_EQ(scheduler_.Next(), nullptr);
}

TEST_F(SchedulerTest, WhatContinuesARequestIsTakenUntilTheQueueIsClosed) {
  const auto continuing = [this] {
    std::unique_ptr<Job> job = MakeJob();
    job->continues = true;
    return job;
  };
  scheduler_.Refuse();
  std::unique_ptr<Job> fresh = MakeJob();
  EXPECT_EQ(scheduler_.Submit(&fresh).code(), absl::StatusCode::kUnavailable);
  Submit(continuing());
  EXPECT_NE(scheduler_.Next(), nullptr);
  scheduler_.Close();
  std::unique_ptr<Job> late = continuing();
  EXPECT_EQ(scheduler_.Submit(&late).code(), absl::StatusCode::kUnavailable);
}

TEST_F(SchedulerTest, SnapshotShowsDepthBytesAndAge) {
  Submit(MakeJob(kNoDeadline, 10));
  now_ns_ = 2'000'001'000;
  Submit(MakeJob(500'000'000'000, 20));
  const QueueSnapshot snapshot = scheduler_.Snapshot();
  EXPECT_EQ(snapshot.depth, 2);
  EXPECT_EQ(snapshot.bytes, 30);
  EXPECT_DOUBLE_EQ(snapshot.oldest_age_seconds, 2);
}

}  // namespace
}  // namespace warpcall
