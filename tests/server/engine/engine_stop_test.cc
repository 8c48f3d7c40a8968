// Causes that end jobs early, and limits that keep long jobs from holding up others.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/blocking_counter.h"
#include "absl/synchronization/notification.h"
#include "server/engine/refusal.h"
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

  // Submits the jobs and waits until lanes work on all of them.
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
  EXPECT_TRUE(engine_->AwaitIdle(absl::Seconds(60)));
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
    EXPECT_EQ(RejectReasonOf(call.status), RejectReason::kRunTime);
  }
  Call refused;
  std::unique_ptr<Job> job = MakeEndlessJob(&refused);
  const absl::Status status = engine_->Submit(&job);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(status.message().find("61 s"), absl::string_view::npos) << status;
  EXPECT_NE(status.message().find("the limit is 60 s (max_run_seconds)"), absl::string_view::npos)
      << status;
  EXPECT_EQ(RetryPushbackMs(status), kNeverRetry);
  EXPECT_EQ(RejectReasonOf(status), RejectReason::kRunTime);
  // Nothing is shut out for good: the next one is tried.
  Call tried;
  std::unique_ptr<Job> next = MakeEndlessJob(&tried);
  EXPECT_TRUE(engine_->Submit(&next).ok());
  tried.cancelled = true;
  EXPECT_TRUE(engine_->AwaitIdle(absl::Seconds(60)));
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
  EXPECT_TRUE(engine_->AwaitIdle(absl::Seconds(60)));
}

}  // namespace
}  // namespace warpcall
