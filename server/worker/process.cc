#include "server/worker/process.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/common/status_macros.h"

namespace warpcall::worker {
namespace {

// The first number in the worker: the control socket, then staging, then the lanes. Above what a
// process just started has open.
constexpr int kFirstNumber = 64;
// The server's own, before they are passed on: beyond those numbers.
constexpr int kAway = 512;

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
    worker.push_back(fcntl(pair[1], F_DUPFD_CLOEXEC, kAway));
    close(pair[1]);
    return worker.back() >= 0 ? absl::OkStatus()
                              : absl::ResourceExhaustedError("no descriptors for a worker process");
  }
};

absl::Status Spawn(const WorkerOptions& options, const std::vector<int>& inherited) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  for (size_t i = 0; i < inherited.size(); ++i)
    posix_spawn_file_actions_adddup2(&actions, inherited[i], kFirstNumber + static_cast<int>(i));
  const std::string device = absl::StrCat("--worker_device=", options.device);
  const std::string lanes = absl::StrCat("--lanes_per_device=", options.lanes);
  std::vector<char*> arguments = {const_cast<char*>("warpcalld"), const_cast<char*>(device.c_str()),
                                  const_cast<char*>(lanes.c_str())};
  if (options.fault_injection) arguments.push_back(const_cast<char*>("--test_fault_injection"));
  arguments.push_back(nullptr);
  pid_t pid;
  const int error =
      posix_spawn(&pid, "/proc/self/exe", &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error == 0) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat("no worker process for ", options.device, ": ", strerror(error)));
}

}  // namespace

absl::StatusOr<std::unique_ptr<RemoteDevice>> StartWorker(const WorkerOptions& options) {
  signal(SIGCHLD, SIG_IGN);  // nobody asks how a worker ended: its sockets say when
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
  Ends ends{.control = kFirstNumber, .staging = kFirstNumber + 1, .lanes = {}};
  for (int i = 0; i < lanes; ++i) ends.lanes.push_back(kFirstNumber + 2 + i);
  return ends;
}

}  // namespace warpcall::worker
