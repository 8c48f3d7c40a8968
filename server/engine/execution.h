// Runs a job on a device: from staged inputs to staged outputs.
#pragma once

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/plan.h"
#include "server/engine/clock.h"
#include "server/engine/executor.h"
#include "server/engine/graph_memory.h"
#include "server/engine/job.h"
#include "server/engine/repeats.h"
#include "server/engine/rounds.h"
#include "server/runtime/device.h"

namespace warpcall {

// Owns a stream and the memory and recordings kept between jobs. Used by one thread.
class Execution final : public Executor {
 public:
  Execution(Device* device, std::unique_ptr<Stream> stream, Clock clock);

  absl::Status BindThread() override { return stream_->BindThread(); }
  absl::Status Run(const Job& job, absl::Span<const StagingRange> staging) override;

 private:
  // Where the kernel reads and writes: staging itself, or device memory that mirrors it.
  struct Placement;
  // The job's rounds and their problems, and whether its operands are mirrored.
  struct Cut;
  // One launch: a problem and the location of its operands.
  struct Piece;

  Cut CutUp(const Job& job) const;
  // Finds memory for the operands.
  absl::StatusOr<Placement> Place(const Job& job, absl::Span<const StagingRange> staging,
                                  const Cut& cut);
  // Stores the implementation's plans, and a workspace for them, in `placement`.
  absl::Status MakePlans(const Job& job, const Cut& cut, Placement* placement);
  absl::StatusOr<PlanPtr> MakePlan(const Job& job, const Piece& piece);
  absl::StatusOr<void*> Workspace(size_t bytes);
  // Memory of the device that a job has at the same place when it repeats; null if there is not
  // enough of it, or if the stream records nothing.
  absl::StatusOr<char*> TakeFixed(size_t bytes);
  // Where a graph's operands lie whenever it comes, one behind the other; null: nowhere.
  char* FindGraphPlace(const Job& job, absl::Span<const StagingRange> staging, const Cut& cut);
  // The recording of what the job repeats, which may just have been made; -1: none.
  int RecordingOf(const Job& job, const Placement& placement, const Cut& cut);
  absl::StatusOr<int> Record(const Job& job, const Placement& placement, const Piece& piece);
  absl::Status RunPlaced(const Job& job, const Cut& cut, const Placement& placement);
  absl::Status Enqueue(const Job& job, const Placement& placement, const Cut& cut);
  struct Round {
    int64_t number;
    int recording;  // of its kernels; -1: none
  };
  absl::Status EnqueueRound(const Job& job, const Placement& placement, const Cut& cut,
                            const Round& of);
  absl::Status Launch(const Job& job, const Piece& piece, const Placement& placement);
  bool IsMirrored(const Job& job) const;
  int RunsOf(const Job& job, const Placement& placement) const;
  absl::Status EnqueuePlan(const Job& job, const Piece& piece, const Placement& placement,
                           const StopFlag* stop);
  absl::Status Wait(const Job& job);
  absl::Status RecordShape(const Job& job, const Placement& placement, const Cut& cut);
  bool TimesSteps(const Job& job) const;

  Device* const device_;
  const std::unique_ptr<Stream> stream_;
  const Clock clock_;
  Repeats repeats_;
  GraphMemory graph_memory_;
  Buffer workspace_;       // kept between jobs while small, but where memory is pooled
  Buffer fixed_;           // for operands and workspaces of small jobs
  size_t fixed_used_ = 0;  // by the job that runs
};

// Adds the reason and the time to try again to a RESOURCE_EXHAUSTED of the device's memory.
absl::Status RefuseForMemory(absl::Status status);

}  // namespace warpcall
