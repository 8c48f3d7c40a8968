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

// Ends this process when SIGTERM or SIGINT comes while it is not ready to take them, whatever its
// other threads wait for (a hung file system, a device's driver).
class StartWatch {
 public:
  // REQUIRES: both are blocked.
  StartWatch();
  // From now on signals wait for somebody else.
  ~StartWatch();
  StartWatch(const StartWatch&) = delete;
  StartWatch& operator=(const StartWatch&) = delete;

  // This process is to serve: being told to end before it does so is no failure, status 0. Before,
  // the status is 128 and the signal.
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
