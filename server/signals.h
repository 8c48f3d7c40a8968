// The signals that end a server or have it read its files again, from before main on.
#pragma once

#include <atomic>
#include <csignal>
#include <thread>

#include "proto/common/steady_wait.h"

namespace warpcall {

// Sent by a lane to this process: what it is there for is gone.
inline constexpr int kDevicesLost = SIGUSR1;

// SIGTERM, SIGINT, SIGHUP and kDevicesLost are blocked before main begins, and libraries' own code
// runs, so that one that comes early waits: as process 1 of a container this program would lose it.
// Every thread inherits that.
//
// Whether SIGTERM was blocked before, as it is in processes that a server starts: their server
// decides when they end.
bool StopSignalsWereBlocked();
// For what is no server: signals end it, those that wait at once.
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
