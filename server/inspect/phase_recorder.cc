#include "server/inspect/phase_recorder.h"

#include <utility>

#include "absl/base/const_init.h"
#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "server/engine/clock.h"
#include "server/engine/phases.h"

namespace warpcall::inspect {
namespace {

absl::Mutex recording_mutex(absl::kConstInit);
std::vector<RecordedPhase>* recorded ABSL_GUARDED_BY(recording_mutex) = nullptr;
int threads_seen ABSL_GUARDED_BY(recording_mutex) = 0;

struct OpenPhases {
  int thread = -1;
  std::vector<RecordedPhase> open;
};

OpenPhases& ThisThread() {
  thread_local OpenPhases phases;
  return phases;
}

void Begin(const char* name, uint64_t request) {
  ThisThread().open.push_back({name, request, 0, MonotonicNs(), 0});
}

// A phase that began before the recording is not in the list of its thread.
void End() {
  OpenPhases& phases = ThisThread();
  if (phases.open.empty()) return;
  RecordedPhase phase = phases.open.back();
  phases.open.pop_back();
  phase.end_ns = MonotonicNs();
  absl::MutexLock lock(&recording_mutex);
  if (recorded == nullptr) return;
  if (phases.thread < 0) phases.thread = threads_seen++;
  phase.thread = phases.thread;
  recorded->push_back(phase);
}

constexpr PhaseWatcher kRecorder = {Begin, End};

}  // namespace

void StartRecordingPhases() {
  absl::MutexLock lock(&recording_mutex);
  delete recorded;
  recorded = new std::vector<RecordedPhase>;
  phase_watcher.store(&kRecorder, std::memory_order_release);
}

std::vector<RecordedPhase> StopRecordingPhases() {
  absl::MutexLock lock(&recording_mutex);
  phase_watcher.store(nullptr, std::memory_order_release);
  std::vector<RecordedPhase> phases;
  if (recorded != nullptr) phases = std::move(*recorded);
  delete recorded;
  recorded = nullptr;
  return phases;
}

}  // namespace warpcall::inspect
