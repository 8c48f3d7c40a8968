// The signals that end a server or have it read its files again, from before main on.
#pragma once

#include <atomic>
#include <csignal>
#include <thread>

#include "proto/common/steady_wait.h"

namespace warpcall {

// A lane sends it to this process when the devices are lost.
inline constexpr int kDevicesLost = SIGUSR1;

// SIGTERM, SIGINT, SIGHUP and kDevicesLost are blocked before main and the libraries' own code run,
// so that an early signal waits. Otherwise this program, as process 1 of a container, would lose
// the signal. Every thread inherits the mask.
//
// Returns true if SIGTERM was blocked before, as in processes that a server starts: their server
// decides when they end.
bool StopSignalsWereBlocked();
// For processes other than servers: signals end the process, pending ones at once.
void UnblockStopSignals();

// SIGTERM, SIGINT and kDevicesLost.
sigset_t StopSignals();

// Ends this process if SIGTERM or SIGINT arrives before the server handles signals, even if other
// threads are blocked (a hung file system, a device's driver).
class StartWatch {
 public:
  // REQUIRES: both are blocked.
  StartWatch();
  // From then on, signals stay pending until other code takes them.
  ~StartWatch();
  StartWatch(const StartWatch&) = delete;
  StartWatch& operator=(const StartWatch&) = delete;

  // Declares that this process will serve. A signal that ends it after this call is no failure:
  // the exit status is 0. Before this call the status is 128 plus the signal's number.
  void ToServe();

 private:
  void Run();

  const int signals_;  // a signalfd
  const int end_;      // an eventfd
  std::atomic<bool> serves_{false};
  SteadyNotification decided_;
  std::thread thread_;  // last: runs on all of the above
};

}  // namespace warpcall
