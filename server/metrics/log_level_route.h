// GET and PUT /log_level: what the server logs, changed while it runs.
#pragma once

#include "absl/strings/string_view.h"
#include "server/metrics/http_message.h"

namespace warpcall {

// Returns true if the client is on this machine (`peer` is its IP address) and its Host is a
// loopback name: localhost, 127.0.0.0/8 or [::1], with any port. A web page whose own name resolves
// to 127.0.0.1 reaches the port through a browser on this machine, but the browser sends that name
// as Host. HTTP/1.0 requests need no Host; browsers send none of those.
bool MayUseLogLevel(const HttpRequest& request, absl::string_view peer);

// Both answer 403 unless MayUseLogLevel.
HttpReply ShowLogLevel(const HttpRequest& request, absl::string_view peer);
// Sets the level that the body names, blanks around it aside, and logs that; 400 lists the names.
HttpReply ChangeLogLevel(const HttpRequest& request, absl::string_view peer);

}  // namespace warpcall
