// Starts workers: child processes that get sockets for their lanes and a file for staging memory.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "server/engine/clock.h"
#include "server/worker/remote_device.h"
#include "server/worker/worker.h"

namespace warpcall::worker {

struct WorkerOptions {
  std::string device;  // "cuda:1"
  int lanes = 1;       // ordinary ones: see LaneKind
  int devices = 1;     // devices of this server with workers
  bool fault_injection = false;
  std::string compile_cache = {};
  Clock clock = MonotonicNs;
};

// A worker process and the device that it owns. The worker ends with its device's object, with this
// process, or when its own device is lost; in that last case another is started.
absl::StatusOr<std::unique_ptr<RemoteDevice>> StartWorker(const WorkerOptions& options);

// The process alone, and the server's ends of what joins it: see RemoteOptions::start.
absl::StatusOr<LinkEnds> SpawnWorker(const WorkerOptions& options, int staging);

// Returns SpawnWorker's descriptors for `lanes` ordinary lanes. Called in the worker.
Ends InheritedEnds(const process::Channel& parent, int lanes);

}  // namespace warpcall::worker
