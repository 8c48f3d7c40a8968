// A scheduler of two lanes, with time that a test moves.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "server/engine/scheduler.h"

namespace warpcall::testing {

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

}  // namespace warpcall::testing
