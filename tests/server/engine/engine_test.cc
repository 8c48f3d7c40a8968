#include "server/engine/engine.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/synchronization/blocking_counter.h"
#include "absl/synchronization/notification.h"
#include "server/engine/refusal.h"
#include "tests/server/engine/engine_fixture.h"

namespace warpcall {
namespace {

using testing::Call;
using testing::EngineTest;

TEST_F(EngineTest, RunsAJobThroughDeviceMemory) {
  Call call;
  Run(&call, MakeJob(&call));
  ASSERT_TRUE(call.status.ok()) << call.status;
  ASSERT_EQ(call.output.size(), 100u);
  EXPECT_EQ(call.output[99], 199);
  EXPECT_TRUE(call.released);
  EXPECT_TRUE(call.trace.ran);
  EXPECT_EQ(call.trace.copy_in_bytes, 400);
  EXPECT_EQ(call.trace.h2d_ns, 100);
  EXPECT_EQ(call.trace.kernel_ns, 200);
  EXPECT_EQ(call.trace.d2h_ns, 300);
  EXPECT_EQ(control_[0].copies, 2);
  EXPECT_EQ(engine_->Snapshot()[0].staging_used_bytes, 0);
}

TEST_F(EngineTest, RunsAJobOnStagingItself) {
  control_[0].kernels_use_staging = true;
  Call call;
  Run(&call, MakeJob(&call));
  ASSERT_TRUE(call.status.ok()) << call.status;
  EXPECT_EQ(call.output[99], 199);
  EXPECT_EQ(control_[0].copies, 0);
}

TEST_F(EngineTest, CutsALargeJobIntoRoundsWithTheSameResult) {
  control_[0].round_bytes = 1024;
  Call call;
  Run(&call, MakeJob(&call, 1001));  // 8008 bytes of operands: the last round is a short one
  ASSERT_TRUE(call.status.ok()) << call.status;
  for (size_t i = 0; i < 1001; ++i) EXPECT_EQ(call.output[i], 2 * call.input[i]) << i;
  EXPECT_GT(control_[0].rounds, 2);
  EXPECT_EQ(control_[0].copies, 2 * control_[0].rounds);
  EXPECT_EQ(control_[0].memory_used_bytes, 192 * 4);  // the workspace that is kept: one round's
}

TEST_F(EngineTest, AJobOfWhichARoundFailsEndsOnceAndTheDeviceIsWaitedFor) {
  control_[0].round_bytes = 1024;
  std::atomic<int> copies{0};
  std::atomic<int> waits{0};
  control_[0].on_operation = [&](const char* operation) {
    if (std::string(operation) == "synchronize") ++waits;
    return std::string(operation) == "h2d" && ++copies == 3 ? absl::InternalError("the third copy")
                                                            : absl::OkStatus();
  };
  Call call;
  Run(&call, MakeJob(&call, 1001));
  EXPECT_EQ(call.status.message(), "the third copy");
  EXPECT_EQ(call.done_count, 1);
  EXPECT_EQ(waits, 1);
}

TEST_F(EngineTest, ZeroElementsWork) {
  Call call;
  Run(&call, MakeJob(&call, 0));
  EXPECT_TRUE(call.status.ok()) << call.status;
}

TEST_F(EngineTest, EveryFailingOperationEndsTheJobOnce) {
  for (const std::string failing : {"mark", "h2d", "d2h", "synchronize"}) {
    control_[0].on_operation = [&](const char* operation) {
      return operation == failing ? absl::InternalError("broken " + failing) : absl::OkStatus();
    };
    Call call;
    Run(&call, MakeJob(&call));
    EXPECT_EQ(call.status.message(), "broken " + failing);
    EXPECT_EQ(call.done_count, 1);
    EXPECT_FALSE(call.trace.ran);
    EXPECT_EQ(engine_->Snapshot()[0].staging_used_bytes, 0);
  }
  control_[0].on_operation = [](const char*) { return absl::OkStatus(); };
  Call call;
  Run(&call, MakeJob(&call));
  EXPECT_TRUE(call.status.ok());
}

TEST_F(EngineTest, OutOfDeviceMemoryIsRefusedAndNothingElseChanges) {
  control_[0].memory_limit_bytes = 1000;
  Call big;
  Run(&big, MakeJob(&big, 200));
  EXPECT_EQ(big.status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(RetryPushbackMs(big.status).has_value());
  EXPECT_EQ(RejectReasonOf(big.status), RejectReason::kDeviceMemory);
  Call small;
  Run(&small, MakeJob(&small, 10));
  EXPECT_TRUE(small.status.ok()) << small.status;
}

TEST_F(EngineTest, ChoosesByNameHealthAndSupport) {
  const Kernel& kernel = registry_.kernels()[0];
  Call call;
  const std::unique_ptr<Job> job = MakeJob(&call);
  EXPECT_EQ(engine_->Choose(kernel, "", "", job->problem)->device, 0);
  EXPECT_EQ(engine_->Choose(kernel, "twice", "fake:1", job->problem)->device, 1);
  EXPECT_EQ(engine_->Choose(kernel, "", "fake:2", job->problem).status().message(),
            "device \"fake:2\" does not exist; available: fake:0, fake:1");
  control_[0].lost = true;
  EXPECT_EQ(engine_->Choose(kernel, "", "", job->problem)->device, 1);
  EXPECT_EQ(engine_->Choose(kernel, "", "fake:0", job->problem).status().code(),
            absl::StatusCode::kUnavailable);
}

TEST_F(EngineTest, ALostDeviceAnswersUnavailableWithItsReason) {
  control_[0].on_operation = [this](const char*) {
    control_[0].lost = true;
    return absl::UnavailableError("the device was lost");
  };
  Call call;
  Run(&call, MakeJob(&call));
  EXPECT_EQ(call.status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(RejectReasonOf(call.status), RejectReason::kDeviceLost);
  EXPECT_EQ(devices_lost_, 0);  // the other one still works
  EXPECT_EQ(engine_->CountHealthy(DeviceKind::kCpu), 1);
  EXPECT_EQ(engine_->CountHealthy(DeviceKind::kCuda), 0);
  const std::vector<DeviceSnapshot> snapshots = engine_->Snapshot();
  EXPECT_FALSE(snapshots[0].healthy);
  EXPECT_TRUE(snapshots[1].healthy);
}

TEST_F(EngineTest, KeepsTheBestReadingOfEachBandwidthAndHowFarItStandsAlone) {
  EXPECT_EQ(engine_->bandwidth(1).bytes_per_second, 0);
  EXPECT_EQ(engine_->Snapshot()[1].bandwidth_ceiling.noise, 1);
  const auto expect = [&](double best, double noise) {
    EXPECT_EQ(engine_->bandwidth(1).bytes_per_second, best);
    EXPECT_NEAR(engine_->bandwidth(1).noise, noise, 1e-9);
    EXPECT_EQ(engine_->Snapshot()[1].bandwidth_ceiling.bytes_per_second, best);
    EXPECT_NEAR(engine_->Snapshot()[1].bandwidth_ceiling.noise, noise, 1e-9);
  };
  engine_->SetBandwidth(1, 2e12);
  expect(2e12, 1);
  engine_->SetBandwidth(1, 4e12);  // the first one was disturbed
  expect(4e12, 0.5);
  engine_->SetBandwidth(1, 1e12);
  expect(4e12, 0.5);
  engine_->SetBandwidth(1, 3.9e12);
  expect(4e12, 0.025);
  EXPECT_EQ(engine_->bandwidth(0).bytes_per_second, 0);
  EXPECT_EQ(engine_->bandwidth(0).noise, 1);
}

// Device 0's lanes are held, so jobs submitted to it remain its work.
TEST_F(EngineTest, ChoosesTheDeviceWithTheLeastPredictedWork) {
  const Kernel& kernel = registry_.kernels()[0];
  absl::BlockingCounter reached(1);
  absl::Notification go;
  BlockLanes(&reached, &go);
  Call call;
  std::unique_ptr<Job> job = MakeJob(&call);
  const Problem problem = job->problem;
  ASSERT_TRUE(engine_->Submit(&job).ok());
  reached.Wait();
  EXPECT_EQ(engine_->Choose(kernel, "", "", problem)->device, 1);
  EXPECT_EQ(engine_->Choose(kernel, "", "fake:0", problem)->device, 0);
  go.Notify();
  call.done.WaitForNotification();
  ASSERT_TRUE(engine_->AwaitIdle(absl::Seconds(60)));
  // Both are idle again; the one whose last turn is longer ago comes first. A device that is named,
  // and so compared with none, has no turn before a job comes to it.
  EXPECT_EQ(engine_->Choose(kernel, "", "", problem)->device, 0);
}

TEST_F(EngineTest, SmallJobsThatAreMeasuredRunOnTheCallersThread) {
  control_[0].kernels_use_staging = true;
  std::thread::id ran_on;
  control_[0].on_operation = [&](const char*) {
    ran_on = std::this_thread::get_id();
    return absl::OkStatus();
  };
  for (int i = 0; i < 8; ++i) {
    Call call;
    Run(&call, MakeJob(&call));
    EXPECT_TRUE(call.status.ok()) << call.status;
    EXPECT_EQ(call.output[99], 199);
    EXPECT_EQ(call.done_count, 1);
    EXPECT_EQ(ran_on == std::this_thread::get_id(), i >= 4) << i;
  }
  control_[0].on_operation = [&](const char*) {
    ran_on = std::this_thread::get_id();
    now_ns_ += 10'000;  // slow from now on
    return absl::OkStatus();
  };
  for (int i = 0; i < 4; ++i) {
    Call call;
    Run(&call, MakeJob(&call));
  }
  EXPECT_NE(ran_on, std::this_thread::get_id());
  engine_->BeginDrain();
  Call late;
  std::unique_ptr<Job> job = MakeJob(&late);
  EXPECT_EQ(engine_->Submit(&job).code(), absl::StatusCode::kUnavailable);
}

std::atomic<int64_t>* search_clock_ns;

absl::StatusOr<PlanPtr> SearchForLong(const Problem& problem, const PlanContext& context) {
  *search_clock_ns += 50'000'000;
  return PlanBy(testing::LaunchDouble, testing::InputBytes)(problem, context);
}

TEST_F(EngineTest, WhatIsFoundOutFirstIsNotExpectedOfTheNext) {
  search_clock_ns = &now_ns_;
  Row searching = registry_.rows()[0];
  searching.implementation.slow_to_plan = true;
  searching.implementation.plan = SearchForLong;
  for (size_t i = 0; i < 5; ++i) {
    Call call;
    std::unique_ptr<Job> job = MakeJob(&call, 100 + i);
    job->row = &searching;
    Run(&call, std::move(job));
    EXPECT_TRUE(call.status.ok()) << call.status;
  }
  Call hasty;
  std::unique_ptr<Job> job = MakeJob(&hasty);
  job->key.deadline_ns = now_ns_ + 10'000'000;
  Run(&hasty, std::move(job));
  EXPECT_TRUE(hasty.status.ok()) << hasty.status;
}

TEST_F(EngineTest, ManyThreadsSubmitAndCancel) {
  std::vector<std::thread> threads;
  constexpr int kThreads = 4;
  constexpr int kJobsEach = 200;
  std::atomic<int> done{0}, cancelled{0};
  std::atomic<uint64_t> id{1'000'000};
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kJobsEach; ++i) {
        Call call;
        std::unique_ptr<Job> job = MakeJob(&call, 1 + static_cast<size_t>(i), t % 2);
        job->key.id = ++id;
        const JobKey own = job->key;
        // Each thread has one job at a time, which no limit refuses.
        const absl::Status submitted = engine_->Submit(&job);
        ASSERT_TRUE(submitted.ok()) << submitted;
        if (i % 3 == 0) {
          call.cancelled = true;
          engine_->Cancel(t % 2, own);
        }
        call.done.WaitForNotification();
        EXPECT_EQ(call.done_count, 1);
        if (call.status.ok()) {
          EXPECT_EQ(call.output.back(), 2 * call.input.back());
          ++done;
        } else {
          EXPECT_TRUE(call.cancelled && call.status.code() == absl::StatusCode::kCancelled)
              << call.status;
          ++cancelled;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(engine_->AwaitIdle(absl::Seconds(60)));
  EXPECT_EQ(done + cancelled, kThreads * kJobsEach);
  EXPECT_GE(done, kThreads * (kJobsEach - (kJobsEach + 2) / 3));  // those that nobody cancelled
  EXPECT_EQ(engine_->Snapshot()[0].staging_used_bytes, 0);
  EXPECT_GT(engine_->Snapshot()[0].memory_total_bytes, 0);
}

// Causes that end jobs early, and limits that keep long jobs from holding up others.

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
