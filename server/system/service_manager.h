// Tells systemd the server's state, by the protocol of sd_notify(3): for units of Type=notify.
#pragma once

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace warpcall {

// The variable that names the service manager's socket: a path, or @NAME of an abstract socket.
inline constexpr char kNotifySocketVariable[] = "NOTIFY_SOCKET";

// Sends `state`, lines of NAME=VALUE ("READY=1"). OK also where the variable is not set.
// INVALID_ARGUMENT: its value names no socket. UNAVAILABLE: the message could not be sent within a
// second.
absl::Status SendToServiceManager(absl::string_view state);

// Sends `state` and logs an error.
void NotifyServiceManager(absl::string_view state);

}  // namespace warpcall
