// Starts workers: this very program, with sockets and a file for staging memory under fixed
// numbers.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "server/worker/remote_device.h"
#include "server/worker/worker.h"

namespace warpcall::worker {

struct WorkerOptions {
  std::string device;  // "cuda:1"
  int lanes = 1;
  bool fault_injection = false;
};

// A worker process and the device that it owns. The worker ends with its device's object, with this
// process, or when its own device is lost.
absl::StatusOr<std::unique_ptr<RemoteDevice>> StartWorker(const WorkerOptions& options);

// In the worker: what StartWorker left under fixed numbers.
Ends InheritedEnds(int lanes);

}  // namespace warpcall::worker
