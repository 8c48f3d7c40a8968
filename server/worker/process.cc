#include "server/worker/process.h"

#include <sys/mman.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/common/status_macros.h"
#include "server/engine/scheduler.h"
#include "server/process/parent.h"

namespace warpcall::worker {

absl::StatusOr<LinkEnds> SpawnWorker(const WorkerOptions& options, int staging) {
  LinkEnds ends;
  ends.mail = Descriptor(memfd_create("warpcall-mail", MFD_CLOEXEC));
  if (ends.mail.get() < 0)
    return absl::ResourceExhaustedError(
        absl::StrCat("no descriptors for a worker process: ", strerror(errno)));
  std::vector<int> theirs = {staging, ends.mail.get()};
  std::vector<Descriptor> their_lanes;
  for (int i = 0; i < options.lanes + kPreparingLanes; ++i) {
    std::pair<Descriptor, Descriptor> sockets;
    ASSIGN_OR_RETURN(sockets, process::MakeSockets(SOCK_SEQPACKET));
    ends.lanes.push_back(std::move(sockets.first));
    their_lanes.push_back(std::move(sockets.second));
    theirs.push_back(their_lanes.back().get());
  }
  ASSIGN_OR_RETURN(ends.child, process::Child::Start({.role = process::Role::kWorker,
                                                      .device = options.device,
                                                      .fault_injection = options.fault_injection,
                                                      .compile_cache = options.compile_cache,
                                                      .lanes = options.lanes},
                                                     theirs));
  return ends;
}

absl::StatusOr<std::unique_ptr<RemoteDevice>> StartWorker(const WorkerOptions& options) {
  return RemoteDevice::Create(
      {.start = [options](int staging) { return SpawnWorker(options, staging); },
       .lanes = options.lanes + kPreparingLanes,
       .spin_places = SpinPlacesFor(UsableCores(), options.devices),
       .clock = options.clock});
}

Ends InheritedEnds(const process::Channel& parent, int lanes) {
  int number = process::kInheritedNext;
  Ends ends;
  ends.control = &parent;
  ends.staging = number++;
  ends.mail = number++;
  for (int i = 0; i < lanes + kPreparingLanes; ++i) ends.lanes.push_back(number++);
  return ends;
}

}  // namespace warpcall::worker
