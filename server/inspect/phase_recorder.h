// Records the phases of the whole process for a profile: thread, name, start and end.
#pragma once

#include <cstdint>
#include <vector>

namespace warpcall::inspect {

struct RecordedPhase {
  const char* name;
  uint64_t request;
  int thread;        // 0, 1, ... in the order in which threads were first seen
  int64_t start_ns;  // MonotonicNs
  int64_t end_ns;
};

// Replaces any other PhaseWatcher.
void StartRecordingPhases();
// Returns the phases that ended since, in the order of their ends. Stops watching.
std::vector<RecordedPhase> StopRecordingPhases();

}  // namespace warpcall::inspect
