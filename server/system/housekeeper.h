// Timers of this process, all on one thread, the housekeeper, which starts with the first timer.
// Timer work never blocks: it waits for no file, device, network or other thread, because every
// other timer would wait with it. Work that may block has its own thread: reading files again (a
// file system may hang), NVML (a driver may hang), and the export of spans (a collector may
// hang).
#pragma once

#include <functional>

#include "absl/time/time.h"

namespace warpcall {

// Calls `work` when it is due. Thread-safe.
class Timer {
 public:
  // With a period it is due again that long after each end of its work. `name` is a literal, for
  // the log.
  Timer(const char* name, std::function<void()> work,
        absl::Duration period = absl::InfiniteDuration());
  ~Timer() { Stop(); }
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

  // Makes the work due after so long, or sooner if it is due already. May be called by the work.
  void Start(absl::Duration after);
  // Waits for work under way. Afterwards nothing is due, and Start does nothing. May be called
  // again. REQUIRES: not called by the work.
  void Stop();

 private:
  int id_;
};

// Calls `work` once, after so long, without an owner.
void RunLater(const char* name, absl::Duration after, std::function<void()> work);

}  // namespace warpcall
