// Checks which machines can reach the server, and that this is intended.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "server/flags/config.h"

namespace warpcall {

// FAILED_PRECONDITION, with advice, if other machines can reach an address of --listen and none of
// TLS, tokens and --insecure is given.
absl::Status CheckExposure(const Config& config);

// Returns a warning if other machines can reach the server and `grpc_version` ("1.51.1") has
// published defects; otherwise returns "".
std::string GrpcWarning(const Config& config, absl::string_view grpc_version);

}  // namespace warpcall
