// The one place where our Status becomes gRPC's.
#pragma once

#include <grpcpp/support/status.h>

#include "absl/status/status.h"

namespace warpcall {

grpc::Status ToGrpcStatus(const absl::Status& status);

// "OK", "INVALID_ARGUMENT", …
const char* CodeName(absl::StatusCode code);

}  // namespace warpcall
