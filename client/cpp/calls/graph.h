// ExecuteGraph: one request, with retries. Internal to the library.
#pragma once

#include "absl/status/statusor.h"
#include "client/cpp/rpc/channel.h"
#include "client/cpp/rpc/connections.h"
#include "warpcall/graph.h"

namespace warpcall::client {

// Sets `attempts`, and leaves `wall` alone. On return, borrowed bytes are no longer read.
absl::StatusOr<GraphResponse> ExecuteGraphOnce(Connections* connections,
                                               const GraphRequest& request, const CallTerms& terms);

}  // namespace warpcall::client
