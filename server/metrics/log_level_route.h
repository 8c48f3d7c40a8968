// GET and PUT /log_level: what the server logs, changed while it runs.
#pragma once

#include "absl/strings/string_view.h"
#include "server/metrics/http_message.h"

namespace warpcall {

// `peer`: the client's IP address. Whoever is not on this machine gets 403.
bool MayUseLogLevel(absl::string_view peer);
HttpReply ShowLogLevel(absl::string_view peer);

// Sets the level that `body` names, blanks around it aside, and logs that; 400 lists the names.
HttpReply ChangeLogLevel(absl::string_view peer, absl::string_view body);

}  // namespace warpcall
