// Ends a running job early: its client left, its deadline passed, the drain is over, or the job has
// held its lane for too long.
#pragma once

#include <atomic>
#include <cstdint>

#include "absl/status/status.h"
#include "kernels/op.h"
#include "proto/common/check.h"
#include "server/engine/clock.h"
#include "server/engine/job.h"
#include "server/engine/service_history.h"

namespace warpcall {

// Limits on all jobs of an engine.
struct RunLimits {
  Clock clock;
  int64_t run_ns_max;                   // longest that a job may hold its lane
  std::atomic<bool> drain_over{false};  // jobs that still run must end
};

// No thread watches: the job's code polls this flag, and the flag reads the clock. Thread-safe.
class RunWatch final : public StopFlag {
 public:
  // `job` has held its lane since `start_ns`. `job` and `limits` outlive the watch.
  RunWatch(const Job& job, const RunLimits& limits, int64_t start_ns)
      : job_(job), limits_(limits), start_ns_(start_ns) {
    WARPCALL_DCHECK(job.trace != nullptr && job.cancelled != nullptr, job.key.id);
  }

  bool IsSet() const override;
  // Returns true if the job has exceeded max_run_seconds or the drain is over. A device that cannot
  // be asked to stop is then stopped by force; a cancelled call or a passed deadline does not
  // justify that.
  bool MustEnd() const;
  // OK if no thread has seen the flag set, so that the work is complete; otherwise the status with
  // which the job ends.
  absl::Status Check() const;

 private:
  enum class Reason : uint8_t { kNone, kCancelled, kDeadline, kDrainOver, kRunTime };

  Reason Look() const;
  Reason LookAtLimits() const;
  // Records `reason`; the first one stays. Returns true unless `reason` is kNone.
  bool Remember(Reason reason) const;

  const Job& job_;
  const RunLimits& limits_;
  const int64_t start_ns_;
  mutable std::atomic<Reason> seen_{Reason::kNone};
};

// "the limit is 60 s (max_run_seconds)"
std::string RunLimitText(int64_t run_ns_max);
// RESOURCE_EXHAUSTED if the work is known to hold its lane longer.
absl::Status CheckRunTime(const ServiceHistory::Prediction& prediction, int64_t run_ns_max);

// The status of jobs that are left when the drain is over.
absl::Status DrainOverError();

}  // namespace warpcall
