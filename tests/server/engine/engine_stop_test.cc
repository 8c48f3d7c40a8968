// What ends jobs before they are done, and what keeps long ones from holding up others.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/blocking_counter.h"
#include "absl/synchronization/notification.h"
#include "server/engine/retry_pushback.h"
#include "tests/server/engine/engine_fixture.h"

namespace warpcall {
namespace {

using testing::Call;

class EngineStopTest : public testing::EngineTest {
 protected:
  std::unique_ptr<Job> MakeEndlessJob(Call* call, int64_t deadline_ns = kNoDeadline) {
    std::unique_ptr<Job> job = MakeJob(call);
    job->row = &registry_.rows()[1];
    job->key.deadline_ns = deadline_ns;
    return job;
  }

  // Submits and waits until lanes work on all of them.
  void StartAll(std::vector<std::unique_ptr<Job>> jobs) {
    // Lanes may still be in it when this returns.
    struct Begun {
      std::atomic<int> left;
      absl::Notification all;
    };
    const auto begun = std::make_shared<Begun>();
    begun->left = static_cast<int>(jobs.size());
    control_[0].on_operation = [begun](const char* operation) {
      if (std::string(operation) == "begin" && begun->left.fetch_sub(1) == 1) begun->all.Notify();
      return absl::OkStatus();
    };
    for (std::unique_ptr<Job>& job : jobs) ASSERT_TRUE(engine_->Submit(&job).ok());
    begun->all.WaitForNotification();
  }
};

// Two jobs of one client that may be long, before anybody else is there: another's small one does
// not wait for them.
TEST_F(EngineStopTest, TwoLongJobsOfOneClientDoNotHoldUpAnother) {
  absl::BlockingCounter reached(1);
  absl::Notification go;
  std::atomic<int> running{0};
  control_[0].on_operation = [&](const char* operation) {
    if (std::string(operation) == "synchronize" && running.fetch_add(1) == 0) {
      reached.DecrementCount();
      go.WaitForNotification();
    }
    return absl::OkStatus();
  };
  Call slow[2];
  for (Call& call : slow) {
    call.trace.work = {.bytes = 48 << 20, .flops = int64_t{1} << 34};
    std::unique_ptr<Job> job = MakeJob(&call);
    job->key.connection = 1;
    ASSERT_TRUE(engine_->Submit(&job).ok());
  }
  reached.Wait();
  Call small;
  small.trace.work = {.bytes = 800, .flops = 900};
  std::unique_ptr<Job> job = MakeJob(&small);
  job->key.connection = 2;
  ASSERT_TRUE(engine_->Submit(&job).ok());
  small.done.WaitForNotification();
  EXPECT_TRUE(small.status.ok()) << small.status;
  EXPECT_FALSE(slow[0].done.HasBeenNotified());
  EXPECT_FALSE(slow[1].done.HasBeenNotified());  // it has not taken the lane
  go.Notify();
  EXPECT_TRUE(engine_->AwaitIdle(absl::Seconds(10)));
  for (Call& call : slow) EXPECT_TRUE(call.status.ok()) << call.status;
}

TEST_F(EngineStopTest, CancelOfARunningJobFreesItsLane) {
  Call running[2];
  std::vector<std::unique_ptr<Job>> jobs;
  for (Call& call : running) jobs.push_back(MakeEndlessJob(&call));
  const uint64_t id = jobs[0]->key.id;
  StartAll(std::move(jobs));
  Call waiting;
  std::unique_ptr<Job> job = MakeJob(&waiting);
  ASSERT_TRUE(engine_->Submit(&job).ok());
  running[0].cancelled = true;
  engine_->Cancel(0, {0, kNoDeadline, id});
  running[0].done.WaitForNotification();
  EXPECT_EQ(running[0].status.code(), absl::StatusCode::kCancelled) << running[0].status;
  EXPECT_FALSE(running[0].trace.ran);
  waiting.done.WaitForNotification();
  EXPECT_TRUE(waiting.status.ok()) << waiting.status;
  EXPECT_FALSE(running[1].done.HasBeenNotified());
  running[1].cancelled = true;
  EXPECT_TRUE(engine_->AwaitIdle(absl::Seconds(10)));
}

TEST_F(EngineStopTest, ADeadlineThatPassesEndsARunningJob) {
  Call call;
  std::vector<std::unique_ptr<Job>> jobs;
  jobs.push_back(MakeEndlessJob(&call, 5000));
  StartAll(std::move(jobs));
  now_ns_ = 5000;
  call.done.WaitForNotification();
  EXPECT_EQ(call.status.code(), absl::StatusCode::kDeadlineExceeded) << call.status;
  EXPECT_EQ(call.trace.reject_reason, RejectReason::kDeadline);
}

TEST_F(EngineStopTest, WhatHoldsItsLaneTooLongIsStoppedAndThenRefused) {
  for (int i = 0; i < 4; ++i) {
    Call call;
    std::vector<std::unique_ptr<Job>> jobs;
    jobs.push_back(MakeEndlessJob(&call));
    StartAll(std::move(jobs));
    now_ns_ += kRunNsMax + 1'000'000'000;
    call.done.WaitForNotification();
    EXPECT_EQ(call.status.code(), absl::StatusCode::kResourceExhausted) << call.status;
    EXPECT_NE(call.status.message().find("the limit is 60 s (max_run_seconds)"),
              absl::string_view::npos)
        << call.status;
    EXPECT_EQ(RetryPushbackMs(call.status), kNeverRetry);
    EXPECT_EQ(call.trace.reject_reason, RejectReason::kRunTime);
  }
  Call refused;
  std::unique_ptr<Job> job = MakeEndlessJob(&refused);
  const absl::Status status = engine_->Submit(&job);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(status.message().find("61 s"), absl::string_view::npos) << status;
  EXPECT_NE(status.message().find("the limit is 60 s (max_run_seconds)"), absl::string_view::npos)
      << status;
  EXPECT_EQ(RetryPushbackMs(status), kNeverRetry);
  EXPECT_EQ(refused.trace.reject_reason, RejectReason::kRunTime);
  // Nothing is shut out for good: the next one is tried.
  Call tried;
  std::unique_ptr<Job> next = MakeEndlessJob(&tried);
  EXPECT_TRUE(engine_->Submit(&next).ok());
  tried.cancelled = true;
  EXPECT_TRUE(engine_->AwaitIdle(absl::Seconds(10)));
}

TEST_F(EngineStopTest, WorkThatIsWholeIsGivenThoughItsTimeIsUp) {
  control_[0].on_operation = [this](const char*) {
    now_ns_ += 2 * kRunNsMax;  // between one look of the row, which has none, and the end
    return absl::OkStatus();
  };
  Call call;
  Run(&call, MakeJob(&call));
  EXPECT_TRUE(call.status.ok()) << call.status;
}

TEST_F(EngineStopTest, EndAllEndsWhatWaitsAndWhatRuns) {
  Call running[2];
  std::vector<std::unique_ptr<Job>> jobs;
  for (Call& call : running) jobs.push_back(MakeEndlessJob(&call));
  StartAll(std::move(jobs));
  Call waiting[3];
  for (Call& call : waiting) {
    std::unique_ptr<Job> job = MakeJob(&call);
    ASSERT_TRUE(engine_->Submit(&job).ok());
  }
  engine_->Refuse();
  EXPECT_FALSE(engine_->AwaitIdle(absl::ZeroDuration()));
  const Engine::Unfinished left = engine_->EndAll();
  EXPECT_EQ(left.waiting, 3);
  EXPECT_EQ(left.running, 2);
  EXPECT_TRUE(engine_->AwaitIdle(absl::Seconds(10)));
  for (const Call* call : {&running[0], &running[1], &waiting[0], &waiting[1], &waiting[2]}) {
    EXPECT_EQ(call->status.code(), absl::StatusCode::kUnavailable) << call->status;
    EXPECT_EQ(call->trace.reject_reason, RejectReason::kDraining);
    EXPECT_EQ(call->done_count, 1);
  }
  Call late;
  std::unique_ptr<Job> job = MakeJob(&late);
  job->continues = true;
  EXPECT_EQ(engine_->Submit(&job).code(), absl::StatusCode::kUnavailable);
}

TEST_F(EngineStopTest, EndAllTellsWhatDoesNotStop) {
  absl::BlockingCounter reached(1);
  absl::Notification go;
  BlockLanes(&reached, &go);
  Call call;
  std::unique_ptr<Job> job = MakeJob(&call);
  const uint64_t id = job->key.id;
  ASSERT_TRUE(engine_->Submit(&job).ok());
  reached.Wait();
  EXPECT_EQ(engine_->EndAll().running, 1);
  EXPECT_FALSE(engine_->AwaitIdle(absl::ZeroDuration()));
  const std::vector<Scheduler::Running> left = engine_->RunningJobs();
  ASSERT_EQ(left.size(), 1u);
  EXPECT_EQ(left[0].id, id);
  EXPECT_STREQ(left[0].row->implementation.name, "twice");
  go.Notify();
  EXPECT_TRUE(engine_->AwaitIdle(absl::Seconds(10)));
}

}  // namespace
}  // namespace warpcall
