// Observes other work on the machine.
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
  // Sleeps for a moment, before the machine is looked at again.
  virtual void Pause() = 0;
  // CPU time that the server has taken.
  virtual int64_t ServiceNs() = 0;
  // Time during which threads of this process were ready to run while others ran, or while the
  // hypervisor had their cores.
  virtual int64_t WaitedForCoreNs() = 0;
  // True if a thread beside the caller's is ready to run.
  virtual bool OthersReady() = 0;
};

// Reads Linux's figures, with `service` for the server and StolenTime's file at `stat_path`.
// Missing figures count as zero, and as no other thread ready.
std::unique_ptr<Machine> NewLinuxMachine(pid_t service,
                                         const std::string& stat_path = "/proc/stat");

}  // namespace warpcall::inspect
