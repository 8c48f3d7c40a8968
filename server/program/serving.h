// A server from the moment it can serve to its end: signals, lame duck, drain.
#pragma once

#include "server/flags/config.h"
#include "server/metrics/http_server.h"
#include "server/metrics/lifecycle.h"
#include "server/program/reload.h"
#include "server/transport/server.h"

namespace warpcall {

// Parts that ServeUntilTold uses; all outlive the call.
struct Serving {
  GrpcServer* server;
  const HttpServer* http;
  Reloader* reloader;
  Lifecycle* lifecycle;
};

// Serves until a signal ends the server, then drains. Returns the process's exit status.
int ServeUntilTold(const Config& config, const ExecuteDeps& deps, const Serving& serving);

}  // namespace warpcall
