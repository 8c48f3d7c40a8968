// Times one row's launches on a stream. Samples are taken one by one, so that a caller can take
// those of several rows in turn, and a drift of the machine meets all alike.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/plan.h"
#include "server/inspect/operand_sets.h"
#include "server/runtime/device.h"

namespace warpcall::inspect {

struct TimingPlan {
  int warmup_launches = 0;  // at least; the first included
  int samples = 0;
  int64_t ns_max = 0;  // of everything below, by the host's clock
};

// Used by the stream's thread.
class RowTimer {
 public:
  // What all rows of a run share.
  struct Shared {
    Stream* stream = nullptr;
    OperandSets* sets = nullptr;
  };

  // `workspace` is as large as `row` says.
  RowTimer(PlanPtr row, const Shared& shared, const TimingPlan& plan, void* workspace);
  ~RowTimer();
  RowTimer(const RowTimer&) = delete;
  RowTimer& operator=(const RowTimer&) = delete;

  // One launch on set 0. When it uses up the time, it counts as the only sample.
  absl::Status First();
  // Launches until the row is warm and it is known how many make a sample: 1 ms where launches can
  // be recorded, so that neither the clock's resolution nor the gaps at both ends count; elsewhere
  // 200 us.
  absl::Status WarmUp();
  // Whether there are as many samples as planned, or some and no time is left.
  bool done() const;
  // REQUIRES: WarmUp has been called, or done().
  absl::Status Sample();

  const std::vector<double>& samples_ns() const { return samples_ns_; }  // of one launch
  int64_t launches_per_sample() const { return launches_; }

 private:
  absl::Status LaunchOn(const Operands& set) const;
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
  LaunchContext context_;
  int64_t spent_ns_ = 0;
  int64_t launches_ = 1;
  int recording_ = -1;
  std::vector<double> samples_ns_;
};

}  // namespace warpcall::inspect
