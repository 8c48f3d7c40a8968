// Asks the server for the points of a benchmark.
#pragma once

#include <functional>

#include "client/cli/bench/report.h"
#include "client/cpp/client.h"

namespace warpcall::cli {

// Fills in what the server says of itself, as far as it does.
void AskServer(client::Client* client, absl::Duration timeout, BenchServer* server);

// Fills in the points, one after the other, and calls `show` for each when it is done. SIGINT,
// SIGTERM or SIGHUP, and a server that is gone, end the point under way, which keeps what came of
// it; the others are then shown as not measured, as are those of a device that was unavailable
// while the server was not. Returns the signal; 0: none came.
int MeasurePoints(client::Client* client, BenchReport* report,
                  const std::function<void(const BenchPoint&)>& show);

}  // namespace warpcall::cli
