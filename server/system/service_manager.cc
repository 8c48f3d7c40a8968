#include "server/system/service_manager.h"

#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "server/log/log.h"
#include "server/system/listen.h"

namespace warpcall {
namespace {

constexpr timeval kSendTimeout = {.tv_sec = 1, .tv_usec = 0};

}  // namespace

absl::Status SendToServiceManager(absl::string_view state) {
  const char* const variable = getenv(kNotifySocketVariable);
  if (variable == nullptr || variable[0] == '\0') return absl::OkStatus();
  const absl::string_view name = variable;
  sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = {}};
  if ((name[0] != '/' && name[0] != '@') || name.size() < 2 ||
      name.size() >= sizeof(address.sun_path))
    return absl::InvalidArgumentError(absl::StrCat(kNotifySocketVariable, ": \"", name,
                                                   "\" is not /PATH or @NAME of at most ",
                                                   sizeof(address.sun_path) - 1, " bytes"));
  name.copy(address.sun_path, name.size());
  // An abstract name begins with a zero byte, and has no other that ends it.
  if (name[0] == '@') address.sun_path[0] = '\0';
  const Descriptor sender(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  setsockopt(sender.get(), SOL_SOCKET, SO_SNDTIMEO, &kSendTimeout, sizeof(kSendTimeout));
  const auto bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());
  if (sendto(sender.get(), state.data(), state.size(), MSG_NOSIGNAL,
             reinterpret_cast<const sockaddr*>(&address), bytes) < 0)
    return absl::UnavailableError(absl::StrCat(name, ": ", strerror(errno)));
  return absl::OkStatus();
}

void NotifyServiceManager(absl::string_view state) {
  if (const absl::Status sent = SendToServiceManager(state); !sent.ok())
    Log(LogLevel::kWarning, "the service manager was not told",
        {{"state", state}, {"error", sent.message()}});
}

}  // namespace warpcall
