// What ends a job that a lane works on before it is done: its client left, its deadline passed, the
// drain is over, or it has held the lane for too long.
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
  int64_t run_ns_max;                   // for which a job may hold its lane
  std::atomic<bool> drain_over{false};  // what still runs is to end
};

// No thread watches: whoever works looks at the flag, and the flag at the clock. Thread-safe.
class RunWatch final : public StopFlag {
 public:
  // `job`, which has had its lane since `start_ns`, and `limits` outlive the watch.
  RunWatch(const Job& job, const RunLimits& limits, int64_t start_ns)
      : job_(job), limits_(limits), start_ns_(start_ns) {
    WARPCALL_DCHECK(job.trace != nullptr && job.cancelled != nullptr, job.key.id);
  }

  bool IsSet() const override;
  // Whether a device that cannot be asked to stop is to be ended by force: not for one client's
  // sake.
  bool MustEnd() const;
  // OK when nobody has seen the flag set, and so the work is whole; otherwise what the job ends
  // with.
  absl::Status Check() const;

 private:
  enum class Reason : uint8_t { kNone, kCancelled, kDeadline, kDrainOver, kRunTime };

  Reason Look() const;
  Reason LookAtLimits() const;
  // True unless `reason` is kNone. The first one stays.
  bool Note(Reason reason) const;

  const Job& job_;
  const RunLimits& limits_;
  const int64_t start_ns_;
  mutable std::atomic<Reason> seen_{Reason::kNone};
};

// "the limit is 60 s (max_run_seconds)"
std::string RunLimitText(int64_t run_ns_max);
// RESOURCE_EXHAUSTED for work that is known to hold its lane longer.
absl::Status CheckRunTime(const ServiceHistory::Prediction& prediction, int64_t run_ns_max);

// What is left when the drain is over ends with it.
absl::Status DrainOverError();

}  // namespace warpcall
