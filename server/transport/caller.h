// Who makes a call, by what gRPC knows of it.
#pragma once

#include <grpcpp/grpcpp.h>

#include "absl/status/statusor.h"
#include "server/access/principal.h"
#include "server/transport/request.h"

namespace warpcall {

// UNAUTHENTICATED, and counted, where the server asks for a token and the call brings none that
// counts.
absl::StatusOr<Principal> Identify(const ExecuteDeps& deps,
                                   const grpc::CallbackServerContext& context);

}  // namespace warpcall
