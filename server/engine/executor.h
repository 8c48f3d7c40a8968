// Interface that carries a lane's job from staged inputs to staged outputs. A stream of this
// process implements it, and so does a worker process.
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

  // The thread that runs jobs calls this first.
  virtual absl::Status BindThread() = 0;
  // `staging` holds the inputs, then room for the outputs. Returns when the device is done with it,
  // also after an error or a stop by the job's watch; fills in the trace's times and launch.
  virtual absl::Status Run(const Job& job, absl::Span<const StagingRange> staging) = 0;
};

}  // namespace warpcall
