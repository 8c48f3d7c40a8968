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
#include "proto/common/status_macros.h"
#include "server/engine/scheduler.h"
#include "server/spawn.h"

namespace warpcall::worker {
namespace {

absl::Status NoDescriptors() {
  return absl::ResourceExhaustedError(
      absl::StrCat("no descriptors for a worker process: ", strerror(errno)));
}

// Descriptors on both sides; closes what was not taken.
struct Descriptors {
  std::vector<int> server;
  std::vector<int> worker;

  ~Descriptors() {
    for (const int fd : server) close(fd);
    CloseWorkers();
  }
  void CloseWorkers() {
    for (const int fd : worker) close(fd);
    worker.clear();
  }
  absl::Status AddForWorker(int fd) {
    if (fd < 0) return NoDescriptors();
    worker.push_back(fd);
    return absl::OkStatus();
  }
  absl::Status AddSockets() {
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) return NoDescriptors();
    server.push_back(pair[0]);
    return AddForWorker(MoveBeyondInherited(pair[1]));
  }
  // A file that the server has, or, below 0, could not open.
  absl::Status AddFile(int file) {
    return AddForWorker(file < 0 ? file : fcntl(file, F_DUPFD_CLOEXEC, kBeyondInherited));
  }
};

}  // namespace

absl::StatusOr<LinkEnds> SpawnWorker(const WorkerOptions& options, int staging) {
  Descriptors descriptors;
  RETURN_IF_ERROR(descriptors.AddSockets());
  RETURN_IF_ERROR(descriptors.AddFile(staging));
  descriptors.server.push_back(memfd_create("warpcall-mail", MFD_CLOEXEC));
  RETURN_IF_ERROR(descriptors.AddFile(descriptors.server.back()));
  for (int i = 0; i < options.lanes + kPreparingLanes; ++i)
    RETURN_IF_ERROR(descriptors.AddSockets());
  std::vector<std::string> arguments = {absl::StrCat("--worker_device=", options.device),
                                        absl::StrCat("--lanes_per_device=", options.lanes)};
  if (options.fault_injection) arguments.push_back("--test_fault_injection");
  if (!options.compile_cache.empty())
    arguments.push_back(absl::StrCat("--compile_cache=", options.compile_cache));
  pid_t pid;
  ASSIGN_OR_RETURN(pid, SpawnSelf(arguments, descriptors.worker));
  // So that the worker's death is seen.
  descriptors.CloseWorkers();
  std::vector<int> mine;
  mine.swap(descriptors.server);
  return LinkEnds{.control = mine[0],
                  .mail = mine[1],
                  .process = OpenProcess(pid, mine[0]),
                  .lanes = {mine.begin() + 2, mine.end()}};
}

absl::StatusOr<std::unique_ptr<RemoteDevice>> StartWorker(const WorkerOptions& options) {
  return RemoteDevice::Create(
      {.start = [options](int staging) { return SpawnWorker(options, staging); },
       .lanes = options.lanes + kPreparingLanes,
       .spin_places = SpinPlacesFor(UsableCores(), options.devices),
       .clock = options.clock});
}

Ends InheritedEnds(int lanes) {
  Ends ends{.control = kInheritedFirst,
            .staging = kInheritedFirst + 1,
            .mail = kInheritedFirst + 2,
            .lanes = {}};
  for (int i = 0; i < lanes + kPreparingLanes; ++i) ends.lanes.push_back(kInheritedFirst + 3 + i);
  return ends;
}

}  // namespace warpcall::worker
