#include "server/engine/scheduler.h"

#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <vector>

#include "server/engine/retry_pushback.h"

namespace warpcall {
namespace {

class SchedulerTest : public ::testing::Test {
 protected:
  std::unique_ptr<Job> MakeJob(int64_t deadline_ns = kNoDeadline, int64_t bytes = 1) {
    auto job = std::make_unique<Job>();
    job->id = ++last_id_;
    job->deadline_ns = deadline_ns;
    job->input_bytes = bytes;
    job->cancelled = &cancelled_;
    job->trace = &trace_;
    return job;
  }

  uint64_t Submit(std::unique_ptr<Job> job) {
    const uint64_t id = job->id;
    EXPECT_TRUE(scheduler_.Submit(&job).ok());
    return id;
  }

  std::atomic<int64_t> now_ns_{1000};
  Scheduler scheduler_{{3, 100}, [this] { return now_ns_.load(); }};
  std::atomic<bool> cancelled_{false};
  RequestTrace trace_;
  uint64_t last_id_ = 0;
};

TEST_F(SchedulerTest, EarliestDeadlineFirstThenFirstCome) {
  const uint64_t late = Submit(MakeJob());
  const uint64_t second = Submit(MakeJob(5000));
  scheduler_.Next();
  const uint64_t first = Submit(MakeJob(4000));
  const uint64_t later = Submit(MakeJob());
  EXPECT_EQ(scheduler_.Next()->id, first);
  EXPECT_EQ(scheduler_.Next()->id, late);
  EXPECT_EQ(scheduler_.Next()->id, later);
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

TEST_F(SchedulerTest, RetryHintFollowsQueueAndServiceTime) {
  for (int i = 0; i < 200; ++i) scheduler_.NoteServiceTime(100'000'000);
  for (int i = 0; i < 3; ++i) Submit(MakeJob());
  std::unique_ptr<Job> job = MakeJob();
  EXPECT_NEAR(static_cast<double>(*RetryPushbackMs(scheduler_.Submit(&job))), 300, 5);
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
  EXPECT_EQ(scheduler_.Remove(5000, id + 1), nullptr);
  ASSERT_NE(scheduler_.Remove(5000, id), nullptr);
  EXPECT_EQ(scheduler_.Remove(5000, id), nullptr);
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

TEST_F(SchedulerTest, CloseWakesThoseWhoWait) {
  std::vector<std::thread> lanes;
  for (int i = 0; i < 3; ++i) lanes.emplace_back([this] { EXPECT_EQ(scheduler_.Next(), nullptr); });
  scheduler_.Close();
  for (std::thread& lane : lanes) lane.join();
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
