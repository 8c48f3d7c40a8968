#include "server/process/parent.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/socket.h>

#include <csignal>

#include "server/log/log_writer.h"
#include "server/process/answer.h"

namespace warpcall::process {

void EndWithStarter() { prctl(PR_SET_PDEATHSIG, SIGKILL); }

absl::StatusOr<const Channel*> JoinParent() {
  sockaddr_storage address;
  socklen_t bytes = sizeof(address);
  if (getsockname(kInheritedFirst, reinterpret_cast<sockaddr*>(&address), &bytes) != 0)
    return absl::FailedPreconditionError("a server starts such a process, and nobody else");
  // Lets the other side see this process end, even while tools that it started run on.
  fcntl(kInheritedFirst, F_SETFD, FD_CLOEXEC);
  // The other side may be stopped for as long as a debugger likes.
  static const Channel& channel = *new Channel(kInheritedFirst, absl::InfiniteDuration());
  static const EndWatch& watch = *new EndWatch(channel, [] { EndProcess(1); });
  static_cast<void>(watch);
  return &channel;
}

}  // namespace warpcall::process
