// Times one row's launches on a stream. Samples are taken one by one: a caller can alternate
// several rows, and a drift of the machine meets all alike.
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

// Length of a sample if its launches can be recorded, and if they cannot.
inline constexpr int64_t kRecordedSampleNs = 1'000'000;
inline constexpr int64_t kLaunchedSampleNs = 200'000;

struct TimingPlan {
  int warmup_launches = 0;  // at least; includes the first
  int samples = 0;
  // By the clock, for everything below: no launch begins afterwards, except for one sample.
  int64_t ns_max = 0;
  // After this time a few samples are enough.
  int64_t ns_enough = kNoDeadline;
  // Sampling may end at this relative standard error of the median; 0: never.
  double max_noise = 0;
  int64_t launches_max = 1000;  // of a sample
  int64_t sample_ns = 0;        // target; 0: kRecordedSampleNs or kLaunchedSampleNs
  // By the clock: a launch that still runs is stopped, if the row can be.
  int64_t deadline_ns = kNoDeadline;
};

// Set once the clock reaches a time. Change the time only while no thread reads the flag.
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
  // State that all rows of a run share.
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

  // Makes one launch on set 0. If it leaves no time for another, it counts as the only sample.
  // DEADLINE_EXCEEDED, here and below, if it was stopped: at the deadline, or because it took all
  // the time, a second at least.
  absl::Status First();
  // Launches until the row is warm and the number of launches per sample is known: 1 ms of them if
  // they can be recorded, so that neither the clock's resolution nor the gaps at both ends count;
  // otherwise 200 us. A long first launch is enough.
  absl::Status WarmUp();
  // True if there are as many samples as planned, or enough of them.
  bool done() const;
  // Plans `samples` in all; little noise in the existing ones is then not enough.
  void PlanSamples(int64_t samples);
  // REQUIRES: WarmUp has been called.
  absl::Status Sample();
  // Positions of the sets that the last sample's launches used: `first`, and those behind it.
  struct SetsUsed {
    int64_t first = 0;
    int64_t count = 0;
  };
  SetsUsed sets_used() const { return sets_used_; }
  // Drops the last sample, to be taken again; its time still counts as spent. Returns false, and
  // drops nothing, if there is no sample, or if retakes have used up their number or their time.
  bool Retake();
  // Drops the last sample; its time still counts as spent. REQUIRES: there is one.
  void Drop();

  const std::vector<double>& samples_ns() const { return samples_ns_; }  // one launch's time each
  double launch_ns() const { return launch_ns_; }                        // roughly
  int64_t spent_ns() const { return spent_ns_; }
  int64_t launches_per_sample() const { return launches_; }

 private:
  absl::Status LaunchOn(const Operands& set) const;
  // Sets the time limit of the next launches.
  void Limit(int64_t ns);
  absl::Status CheckNotStopped() const;
  // Device time of `count` launches, one by one.
  absl::StatusOr<int64_t> Launch(int64_t count);
  absl::StatusOr<int64_t> Replay();
  // Turns the launches of a sample into a recording if that makes them faster.
  absl::Status TryRecording(double launch_ns);
  absl::Status Record();
  void Forget();

  const PlanPtr row_;
  const Shared shared_;
  const TimingPlan plan_;
  const int64_t sample_ns_;  // target
  TimeLimit limit_;
  LaunchContext context_;
  int64_t spent_ns_ = 0;
  double launch_ns_ = 0;
  int64_t launches_ = 1;
  int recording_ = -1;
  std::vector<double> samples_ns_;
  SetsUsed sets_used_;
  int64_t samples_planned_;
  int retaken_ = 0;
  // When the noise is computed next, and its last value.
  size_t next_look_;
  double noise_ = std::numeric_limits<double>::infinity();
};

}  // namespace warpcall::inspect
