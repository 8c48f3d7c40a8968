// The client's calls and results as bytes of the protocol. Internal to the library.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "client/cpp/channel.h"
#include "client/cpp/client.h"

namespace warpcall::client {

using Fragments = absl::Span<const absl::Span<const char>>;

// An ExecuteRequest: what is small in pieces of its own, tensor data as they lie in memory, held by
// the tensor's owner or else by `borrowed_owner`.
std::vector<Piece> EncodeCall(const Call& call, const std::shared_ptr<const void>& borrowed_owner);

// An ExecuteResponse; tensor data are copied, once. INTERNAL when it is malformed or a tensor's
// bytes do not fit its type and shape. Leaves `wall` and `attempts` alone.
absl::StatusOr<Result> DecodeResult(Fragments message);

absl::StatusOr<std::vector<KernelInfo>> DecodeKernels(Fragments message);
absl::StatusOr<std::vector<DeviceInfo>> DecodeDevices(Fragments message);

// grpc.health.v1.HealthCheckRequest and -Response, for which Debian ships no generated C++.
std::string EncodeHealthRequest(absl::string_view service);
absl::StatusOr<ServingStatus> DecodeHealthResponse(Fragments message);

}  // namespace warpcall::client
