// Whatever carries a lane's job from staged inputs to staged outputs: a stream of this process, or
// a worker process.
#pragma once

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "server/engine/job.h"

namespace warpcall {

// One operand's staging memory.
struct StagingRange {
  char* data;
  size_t bytes;
};

// Used by one thread.
class Executor {
 public:
  virtual ~Executor() = default;

  // Called first by the thread that runs jobs.
  virtual absl::Status BindThread() = 0;
  // `staging`: the inputs, filled, then the outputs. Returns when the device is done with them,
  // also when it failed or the job's watch ended it; fills in the trace's times and launch.
  virtual absl::Status Run(const Job& job, absl::Span<const StagingRange> staging) = 0;
};

}  // namespace warpcall
