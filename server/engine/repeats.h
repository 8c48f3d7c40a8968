// Which jobs come again and again with the same memory, so that their launches are worth recording.
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

  // The recording that runs `plan` on these operands; -1 when there is none (yet). `enqueue` puts
  // the launch on the stream; it is called when the job has come often enough to be recorded.
  int RecordingOf(const PlanPtr& plan, const Operands& operands,
                  absl::FunctionRef<absl::Status()> enqueue);

 private:
  struct Entry {
    PlanPtr plan;
    Operands operands;
    int runs;
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
