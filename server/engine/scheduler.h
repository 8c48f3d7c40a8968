// The bounded queue in front of one device: earliest deadline first, then first come.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/btree_map.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "server/engine/clock.h"
#include "server/engine/job.h"

namespace warpcall {

struct QueueLimits {
  int64_t requests_max;
  int64_t bytes_max;  // of the waiting requests' inputs
};

struct QueueSnapshot {
  int64_t depth = 0;
  int64_t bytes = 0;
  double oldest_age_seconds = 0;
};

// Thread-safe.
class Scheduler {
 public:
  Scheduler(QueueLimits limits, Clock clock);

  // Takes the job, or leaves it where it is and says why: RESOURCE_EXHAUSTED names the limit and
  // when to retry, DEADLINE_EXCEEDED and CANCELLED as CheckStillWanted, UNAVAILABLE after Close.
  absl::Status Submit(std::unique_ptr<Job>* job);

  // Takes a waiting job back; null when it is not waiting.
  std::unique_ptr<Job> Remove(int64_t deadline_ns, uint64_t id);

  // The next job, waiting for one; null once closed and empty.
  std::unique_ptr<Job> Next();

  // A lane finished a job that kept it for `ns`: feeds the estimate behind the retry hint.
  void NoteServiceTime(int64_t ns);

  // No job is accepted any more; those waiting are still handed out.
  void Close();

  QueueSnapshot Snapshot() const;

 private:
  using Key = std::pair<int64_t, uint64_t>;  // deadline, id

  // A lane in Next without a job.
  struct Idle {
    absl::CondVar called;
    bool is_called = false;
  };

  absl::Status Admit(const Job& job) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CallIdle() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  int64_t EstimatedWaitMs() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const QueueLimits limits_;
  const Clock clock_;
  mutable absl::Mutex mutex_;
  // The one that became idle last is called first: its core's caches still know the work.
  std::vector<Idle*> idle_ ABSL_GUARDED_BY(mutex_);
  absl::btree_map<Key, std::unique_ptr<Job>> waiting_ ABSL_GUARDED_BY(mutex_);
  int64_t waiting_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  double service_ns_ ABSL_GUARDED_BY(mutex_) = 0;  // exponential mean
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace warpcall
