// Looks after a load run: a line on stderr every second, and Ctrl-C.
#pragma once

#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "client/cli/common/interrupt.h"
#include "client/cli/load/run.h"

namespace warpcall::cli {

// What wakes the thread that looks after a run, Ctrl-C (Interrupt) among it. One at a time.
class LoadWakeup {
 public:
  // Thread-safe.
  void Notify();
  // Waits for Notify or a signal, both of which count for one wait, for at most so long.
  void Await(int64_t timeout_ms);
  bool interrupted() const { return interrupt_.signal() != 0; }

 private:
  absl::Mutex mutex_;
  bool notified_ ABSL_GUARDED_BY(mutex_) = false;
  const Interrupt interrupt_{[this](int) { Notify(); }};  // last: its thread uses the others
};

// Waits until `run`, whose on_done notifies `wakeup`, is done, and stops it when it is interrupted.
void WatchLoad(LoadRun* run, LoadWakeup* wakeup);

}  // namespace warpcall::cli
