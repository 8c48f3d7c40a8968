// GET and PUT /log_level: what the server logs, changed while it runs.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace warpcall {

struct HttpReply {
  int status = 200;
  std::string body;
};

// `peer`: the client's IP address. Whoever is not on this machine gets 403.
HttpReply ShowLogLevel(absl::string_view peer);

// Sets the level that `body` names, blanks around it aside, and logs that; 400 lists the names.
HttpReply ChangeLogLevel(absl::string_view peer, absl::string_view body);

}  // namespace warpcall
