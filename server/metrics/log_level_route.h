// GET and PUT /log_level: what the server logs, changed while it runs.
#pragma once

#include "absl/strings/string_view.h"
#include "server/metrics/http_message.h"

namespace warpcall {

// Whether the client is on this machine (`peer`: its IP address) and calls the server by a name of
// loopback: localhost, 127.0.0.0/8 or [::1], with any port. A web page that has its own name
// resolve to 127.0.0.1 reaches the port through its reader's browser, which sends the page's name
// as Host. A request of HTTP/1.0 needs no Host; browsers send none.
bool MayUseLogLevel(const HttpRequest& request, absl::string_view peer);

// Both answer 403 to a client that may not use it.
HttpReply ShowLogLevel(const HttpRequest& request, absl::string_view peer);
// Sets the level that the body names, blanks around it aside, and logs that; 400 lists the names.
HttpReply ChangeLogLevel(const HttpRequest& request, absl::string_view peer);

}  // namespace warpcall
