// Times one row's launches on a stream. Samples are taken one by one, so that a caller can take
// those of several rows in turn, and a drift of the machine meets all alike.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/plan.h"
#include "server/engine/clock.h"
#include "server/inspect/operand_sets.h"
#include "server/runtime/device.h"

namespace warpcall::inspect {

// Launches that cannot be recorded make a sample of so long.
inline constexpr int64_t kLaunchedSampleNs = 200'000;

struct TimingPlan {
  int warmup_launches = 0;  // at least; the first included
  int samples = 0;
  // Of everything below, by the clock: no launch begins after so long, but for one sample.
  int64_t ns_max = 0;
  // After so long a few samples are enough.
  int64_t ns_enough = kNoDeadline;
  // At most this relative standard error of the median is enough; 0: none is.
  double max_noise = 0;
  // By the clock: what runs then is stopped, where the row can be.
  int64_t deadline_ns = kNoDeadline;
};

// Set when the clock has come to a time, which changes only while nobody looks.
class TimeLimit final : public StopFlag {
 public:
  explicit TimeLimit(Clock clock) : clock_(std::move(clock)) {}
  void Set(int64_t at_ns) { at_ns_.store(at_ns, std::memory_order_relaxed); }
  bool IsSet() const override { return clock_() >= at_ns_.load(std::memory_order_relaxed); }

 private:
  const Clock clock_;
  std::atomic<int64_t> at_ns_{kNoDeadline};
};

// Used by the stream's thread.
class RowTimer {
 public:
  // What all rows of a run share.
  struct Shared {
    Stream* stream = nullptr;
    OperandSets* sets = nullptr;
    Clock clock = MonotonicNs;
  };

  // `workspace` is as large as `row` says.
  RowTimer(PlanPtr row, const Shared& shared, const TimingPlan& plan, void* workspace);
  ~RowTimer();
  RowTimer(const RowTimer&) = delete;
  RowTimer& operator=(const RowTimer&) = delete;

  // One launch on set 0. When it leaves no time for another, it counts as the only sample.
  // DEADLINE_EXCEEDED, here and below, when it was stopped: at the deadline, or because it took all
  // the time, a second at least.
  absl::Status First();
  // Launches until the row is warm and it is known how many make a sample: 1 ms where launches can
  // be recorded, so that neither the clock's resolution nor the gaps at both ends count; elsewhere
  // 200 us. A first launch that took long will do.
  absl::Status WarmUp();
  // Whether there are as many samples as planned, or enough of them.
  bool done() const;
  // So many in all instead of the plan's, of which little noise in those there are is not enough.
  void PlanSamples(int64_t samples);
  // REQUIRES: WarmUp has been called.
  absl::Status Sample();
  // Forgets the last sample, which is taken once more; not its time. False when that has been done
  // so often that there is little hope, and the sample stays, or there is none.
  bool Retake();

  const std::vector<double>& samples_ns() const { return samples_ns_; }  // of one launch
  double launch_ns() const { return launch_ns_; }                        // roughly
  int64_t spent_ns() const { return spent_ns_; }
  int64_t launches_per_sample() const { return launches_; }

 private:
  absl::Status LaunchOn(const Operands& set) const;
  // For launches that may take so long.
  void Limit(int64_t ns);
  absl::Status CheckNotStopped() const;
  // Device time of so many launches, one by one.
  absl::StatusOr<int64_t> Launch(int64_t count);
  absl::StatusOr<int64_t> Replay();
  // Turns the launches of a sample into a recording where that makes them faster.
  absl::Status TryRecording(double launch_ns);
  absl::Status Record();
  void Forget();

  const PlanPtr row_;
  const Shared shared_;
  const TimingPlan plan_;
  const int64_t sample_ns_;  // wanted
  TimeLimit limit_;
  LaunchContext context_;
  int64_t spent_ns_ = 0;
  double launch_ns_ = 0;
  int64_t launches_ = 1;
  int recording_ = -1;
  std::vector<double> samples_ns_;
  int64_t samples_planned_;
  int retaken_ = 0;
  // When the noise is worked out again, and what it was.
  size_t next_look_;
  double noise_ = std::numeric_limits<double>::infinity();
};

}  // namespace warpcall::inspect
