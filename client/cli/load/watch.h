// Looks after a load run: a line on stderr every second, and Ctrl-C.
#pragma once

#include <cstdint>

#include "client/cli/load/latency_histogram.h"
#include "client/cli/load/run.h"

namespace warpcall::cli {

// What wakes the thread that looks after a run. While it lives, the first SIGINT or SIGTERM does,
// too, instead of ending the program; the second ends it. One at a time.
class LoadWakeup {
 public:
  LoadWakeup();
  ~LoadWakeup();
  LoadWakeup(const LoadWakeup&) = delete;
  LoadWakeup& operator=(const LoadWakeup&) = delete;

  // Thread-safe.
  void Notify();
  // Waits for Notify or a signal, both of which count for one wait, for at most so long.
  void Await(int64_t timeout_ms);
  bool interrupted() const;

 private:
  const int event_;
};

// Waits until `run`, whose on_done notifies `wakeup`, is done, and stops it when it is interrupted.
void WatchLoad(LoadRun* run, LoadWakeup* wakeup);

}  // namespace warpcall::cli
