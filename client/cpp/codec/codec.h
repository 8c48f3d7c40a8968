// The client's calls and results as bytes of the protocol. Internal to the library.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "client/cpp/rpc/channel.h"
#include "warpcall/client.h"

namespace warpcall::v1 {
class Tensor;
}

namespace warpcall::client {

using Fragments = absl::Span<const absl::Span<const char>>;

// INTERNAL: a response that can't be what the server meant, which is its defect.
absl::Status BadResponse(absl::string_view what);

// Decodes the type and shape of a tensor that the server sent.
absl::StatusOr<TensorSpec> DecodeSpec(const v1::Tensor& tensor);
// Likewise. INTERNAL unless a tensor of that type and shape has `data_bytes` bytes.
absl::StatusOr<TensorSpec> DecodeSpec(const v1::Tensor& tensor, size_t data_bytes);

// Encodes an ExecuteRequest: small fields in pieces of their own, tensor data without a copy. The
// tensor's owner, or else `borrowed_owner`, keeps the data alive.
std::vector<Piece> EncodeCall(const Call& call, const std::shared_ptr<const void>& borrowed_owner);

// An ExecuteResponse; tensor data are copied, once, to where Call::destinations says. INTERNAL when
// it is malformed or a tensor's bytes do not fit its type and shape. Leaves `wall`, `attempts` and
// `stripes` alone.
absl::StatusOr<Result> DecodeResult(Fragments message,
                                    absl::Span<const Destination> destinations = {});

// Says where the bytes of each output go, or why they don't.
using PlaceOutputs =
    absl::FunctionRef<absl::StatusOr<std::vector<char*>>(const std::vector<TensorSpec>& outputs)>;
// Decodes into memory that `place` provides. `place` is called once, after all outputs have been
// checked; Result::outputs stays empty. Outputs that stay on the device are in Result::outputs, and
// `place` is not called.
absl::StatusOr<Result> DecodeResultInto(Fragments message, PlaceOutputs place);

// The first message of ExecuteStream: `call`, but for its data.
std::string EncodeStreamHeader(const StreamCall& call);
// The outputs that ExecuteResponse announces as the header of a stream.
absl::StatusOr<std::vector<TensorSpec>> DecodeStreamHeader(Fragments header);
// Decodes the ExecuteResponse at the end of a stream; of its outputs only those that stay on the
// device count.
absl::StatusOr<Result> DecodeStreamEnd(Fragments done);

absl::StatusOr<std::vector<KernelInfo>> DecodeKernels(Fragments message);
absl::StatusOr<std::vector<DeviceInfo>> DecodeDevices(Fragments message);
absl::StatusOr<ServerDescription> DecodeServerInfo(Fragments message);

// grpc.health.v1.HealthCheckRequest and -Response, for which Debian ships no generated C++.
std::string EncodeHealthRequest(absl::string_view service);
absl::StatusOr<ServingStatus> DecodeHealthResponse(Fragments message);

}  // namespace warpcall::client
