// Who can reach the server, and whether that is meant.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "server/config.h"

namespace warpcall {

// FAILED_PRECONDITION, and what to do, where other machines can reach an address of --listen and
// neither TLS nor tokens nor --insecure are given.
absl::Status CheckExposure(const Config& config);

// What to warn of where other machines can reach the server's gRPC, of that version ("1.51.1"), and
// it has published defects; empty: nothing.
std::string GrpcWarning(const Config& config, absl::string_view grpc_version);

}  // namespace warpcall
