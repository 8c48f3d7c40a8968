#include "server/worker/process.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/common/status_macros.h"
#include "server/spawn.h"

namespace warpcall::worker {
namespace {

// Descriptors on both sides; closes what was not taken.
struct Sockets {
  std::vector<int> server;
  std::vector<int> worker;

  ~Sockets() {
    for (const int fd : server) close(fd);
    for (const int fd : worker) close(fd);
  }
  absl::Status Add() {
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0)
      return absl::ResourceExhaustedError(
          absl::StrCat("no sockets for a worker process: ", strerror(errno)));
    server.push_back(pair[0]);
    worker.push_back(MoveAway(pair[1]));
    return worker.back() >= 0 ? absl::OkStatus()
                              : absl::ResourceExhaustedError("no descriptors for a worker process");
  }
};

absl::Status Spawn(const WorkerOptions& options, const std::vector<int>& inherited) {
  std::vector<std::string> arguments = {absl::StrCat("--worker_device=", options.device),
                                        absl::StrCat("--lanes_per_device=", options.lanes)};
  if (options.fault_injection) arguments.push_back("--test_fault_injection");
  return SpawnSelf(arguments, inherited);
}

}  // namespace

absl::StatusOr<std::unique_ptr<RemoteDevice>> StartWorker(const WorkerOptions& options) {
  Sockets sockets;
  for (int i = 0; i < 1 + options.lanes; ++i) RETURN_IF_ERROR(sockets.Add());
  const int staging = memfd_create("warpcall-staging", MFD_CLOEXEC);
  const int shared = staging < 0 ? -1 : fcntl(staging, F_DUPFD_CLOEXEC, kAway);
  if (shared < 0)
    return absl::ResourceExhaustedError(
        absl::StrCat("no shared memory for a worker process: ", strerror(errno)));
  std::vector<int> inherited = sockets.worker;
  inherited.insert(inherited.begin() + 1, shared);
  const absl::Status spawned = Spawn(options, inherited);
  close(shared);
  if (!spawned.ok()) {
    close(staging);
    return spawned;
  }
  const int control = sockets.server.front();
  std::vector<int> lanes(sockets.server.begin() + 1, sockets.server.end());
  sockets.server.clear();
  // The worker's ends close here, so that its death is seen.
  for (const int fd : sockets.worker) close(fd);
  sockets.worker.clear();
  return RemoteDevice::Connect(control, staging, std::move(lanes));
}

Ends InheritedEnds(int lanes) {
  Ends ends{.control = kInheritedFirst, .staging = kInheritedFirst + 1, .lanes = {}};
  for (int i = 0; i < lanes; ++i) ends.lanes.push_back(kInheritedFirst + 2 + i);
  return ends;
}

}  // namespace warpcall::worker
