// Finds the caller of a call from gRPC's context.
#pragma once

#include <grpcpp/grpcpp.h>

#include <string>

#include "absl/status/statusor.h"
#include "server/access/gate.h"
#include "server/access/principal.h"
#include "server/transport/request.h"

namespace warpcall {

// RESOURCE_EXHAUSTED names the limit of the call's metadata. UNAUTHENTICATED, and counted, where
// the server asks for a token and the call brings none that counts.
absl::StatusOr<Principal> Identify(const ExecuteDeps& deps,
                                   const grpc::CallbackServerContext& context);

// Returns who calls by the connection that gRPC names `peer`: an address and a port, or
// "unix:uid 1000". "unix:" where the user is not known.
std::string PeerOf(const ExecuteDeps& deps, const std::string& peer);

// Lets the call in: see Gate::Admit. A refusal that passes by itself says when to try again.
// REQUIRES: `caller` was identified.
absl::StatusOr<Admission> Admit(const ExecuteDeps& deps, const absl::StatusOr<Principal>& caller,
                                absl::string_view method);
// Counts `bytes` against its principal's limit: see Admission::Hold.
absl::Status Hold(int64_t bytes, Admission* admission);

// The service's methods, as policies name them.
Policy::Names MethodNames();

}  // namespace warpcall
