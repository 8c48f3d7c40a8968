// Keeps what the phases of the whole process are, for a profile: who did what, from when to when.
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

// Takes the place of any other PhaseWatcher.
void StartRecordingPhases();
// Those that ended since, in the order of their ends. Nobody watches from now on.
std::vector<RecordedPhase> StopRecordingPhases();

}  // namespace warpcall::inspect
