// What can be seen of who else uses the machine.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>

namespace warpcall::inspect {

class Machine {
 public:
  virtual ~Machine() = default;
  // Monotonic.
  virtual int64_t NowNs() = 0;
  // Sleeps for a moment, before it is looked at again.
  virtual void Pause() = 0;
  // CPU time that the server has taken.
  virtual int64_t ServiceNs() = 0;
  // For which threads of this process were ready to run, and others did, or the hypervisor had
  // their cores.
  virtual int64_t WaitedForCoreNs() = 0;
  // Whether a thread beside the caller's is ready to run.
  virtual bool OthersReady() = 0;
};

// As Linux tells it, with `service` for the server and StolenTime's file at `stat_path`. Zeros, and
// nobody ready, where it does not.
std::unique_ptr<Machine> NewLinuxMachine(pid_t service,
                                         const std::string& stat_path = "/proc/stat");

}  // namespace warpcall::inspect
