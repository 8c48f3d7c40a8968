// Threads and descriptors that the system may refuse, by a limit of the user's processes or of a
// control group.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace warpcall {

// The numbers that determine how many threads a server has.
struct ThreadNeeds {
  int cpus = 1;          // CPUs that this process may run on
  int cores = 1;         // cores of the machine; gRPC sizes its pools by them
  int lanes = 1;         // lanes of the device, without the one that prepares
  int copy_threads = 1;  // the lane's own among them
  int cpu_workers = 0;   // worker processes
};

// The most threads that a server of the CPU has at once, its own and its libraries'. Not those of
// CUDA's driver, whose machines have no such limits.
int ThreadsNeeded(const ThreadNeeds& needs);
// The most of a process that it starts for an inspection.
int InspectionThreadsNeeded(const ThreadNeeds& needs);

// Has so many threads at once, for a moment. Libraries end the process when the system refuses them
// one (gRPC aborts, OpenMP exits), so this is asked before they need any: RESOURCE_EXHAUSTED says
// how many there were, and the limits.
absl::Status CheckThreads(int threads);
// As CheckThreads for the server's. Where threads of inspections are lacking, which fail alone, the
// log warns.
absl::Status CheckThreadsFor(const ThreadNeeds& needs);

// "RLIMIT_NPROC is 12, pids.max of the control group is 30": what may refuse a thread.
std::string ThreadLimits();

// Takes as many descriptors as the hard limit allows, where the usual soft one is 1024.
void RaiseDescriptorLimit();
// FAILED_PRECONDITION where the limit is lower than a server needs: descriptors of its own, numbers
// for those of its processes, and room for connections.
absl::Status CheckDescriptorLimit();

// From now on a thread of our own that the system refuses ends the process with status 1 and the
// reason, in place of a call of abort().
void ExplainRefusedThreads();

}  // namespace warpcall
