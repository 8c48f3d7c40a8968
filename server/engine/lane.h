// Carries jobs, one after the other, from request bytes to finished answers.
#pragma once

#include <functional>
#include <memory>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "kernels/cpu/thread_pool.h"
#include "server/engine/clock.h"
#include "server/engine/executor.h"
#include "server/engine/job.h"
#include "server/engine/plan_refusals.h"
#include "server/engine/run_watch.h"
#include "server/engine/scheduler.h"
#include "server/engine/service_history.h"
#include "server/engine/staging_pool.h"
#include "server/runtime/device.h"

namespace warpcall {

// Time in which at least one lane of a device was at work. Thread-safe.
class BusyMeter {
 public:
  explicit BusyMeter(Clock clock) : clock_(std::move(clock)) {}
  void Enter();
  void Leave();
  int64_t busy_ns() const;

 private:
  const Clock clock_;
  mutable absl::Mutex mutex_;
  int running_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t since_ns_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t busy_ns_ ABSL_GUARDED_BY(mutex_) = 0;
};

// State shared by the lanes of one device; outlives them.
struct LaneShared {
  Device* device;
  Scheduler* scheduler;  // source of the lane's jobs; null: a caller brings them
  BusyMeter* busy;
  PlanRefusals* refusals;
  ServiceHistory* history;
  cpu::ThreadPool* copiers;       // for large inputs
  const RunLimits* limits;        // also holds the clock
  std::function<void()> on_lost;  // called when a job ended and the device was found lost
};

// Used by one thread at a time.
class Lane {
 public:
  Lane(const LaneShared& shared, std::unique_ptr<Executor> executor);

  // A thread that serves the lane calls this first. One that runs a job for its caller does not: it
  // would keep the lane's low priority.
  void BindThread();
  // Runs the job, which has its staging, and ends it.
  void Process(std::unique_ptr<Job> job);

  // The steps of Process, for one job at a time. After an error, call End at once.
  //
  // Copies the job's inputs in, unless the client no longer waits.
  absl::Status Begin(std::unique_ptr<Job> job);
  // REQUIRES: Begin has returned OK.
  absl::Status Run();
  void End(absl::Status status);

 private:
  void CopyIn(Job& job);
  // Runs the job's implementation; while one refuses, the next that the job may use.
  absl::Status RunSomeRow(Job& job, absl::Span<const StagingRange> staging);
  // So that no request gets the row again for such a problem: the job's, or a step's of its graph.
  void RecordRefusal(const Job& job, const absl::Status& refusal);

  const LaneShared shared_;
  const std::unique_ptr<Executor> executor_;
  // Set from Begin to End.
  std::unique_ptr<Job> job_;
  int64_t start_ns_ = 0;
  bool is_prepared_ = false;  // the implementation, for the job's problem
};

// A lane's own thread, which runs jobs from the device's queue.
class LaneThread {
 public:
  // `scheduler` and `lane` outlive the thread.
  LaneThread(Scheduler* scheduler, Lane* lane, LaneKind kind);
  // REQUIRES: the scheduler is closed. Returns when the queue is empty and the last job done.
  ~LaneThread() { thread_.join(); }
  LaneThread(const LaneThread&) = delete;
  LaneThread& operator=(const LaneThread&) = delete;

 private:
  std::thread thread_;
};

}  // namespace warpcall
