// Finds jobs that repeat with the same memory, so that recording their launches pays off.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/plan.h"
#include "server/runtime/device.h"

namespace warpcall {

// Recordings of one stream. Used by one thread.
class Repeats {
 public:
  // `stream` outlives it.
  explicit Repeats(Stream* stream) : stream_(stream) {}

  // Returns the recording that runs `plan` for these operands; -1 when there is none (yet). Calls
  // `record`, which returns a new recording, once the job is frequent enough. `runs`: of this job
  // on all streams, as far as they are counted.
  int RecordingOf(const PlanPtr& plan, const Operands& operands, int runs,
                  absl::FunctionRef<absl::StatusOr<int>()> record);

 private:
  struct Entry {
    PlanPtr plan;
    Operands operands;
    int runs;
    bool is_tried;
    int recording;
    uint64_t last_used;
  };

  Entry* Find(const PlanPtr& plan, const Operands& operands);
  Entry* Add(const PlanPtr& plan, const Operands& operands);

  Stream* const stream_;
  std::vector<Entry> entries_;
  uint64_t now_ = 0;
};

}  // namespace warpcall
