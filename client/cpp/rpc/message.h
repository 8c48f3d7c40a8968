// gRPC's messages as the rest of the library sees them. Internal to the library.
#pragma once

#include <grpcpp/client_context.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/status.h>

#include <functional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client/cpp/rpc/channel.h"

namespace warpcall::client {

// Nothing that has an owner is copied. INVALID_ARGUMENT when it is over kMessageBytesMax.
absl::StatusOr<grpc::ByteBuffer> ToByteBuffer(absl::Span<const Piece> message);

// Sets where the bytes of `message` lie and who holds them. INTERNAL when gRPC cannot say.
absl::Status TakeFragments(const grpc::ByteBuffer& message, Reply* reply);

// Tells `queued` (ClientOptions::queued) what the initial metadata, which have come, say of it.
void ReportPosition(const grpc::ClientContext& context, const std::function<void(int)>& queued);

// Tells gRPC what a call that begins is to say beside its messages.
void SetTerms(const CallTerms& terms, const ChannelOptions& options, grpc::ClientContext* context);

// Converts the status of a finished call. A call that was cut between the server and the client
// becomes UNAVAILABLE, as when the connection is lost.
absl::Status ToStatus(const grpc::Status& status);

// Status and pushback of a call that has ended.
Reply EndOfCall(const grpc::Status& status, const grpc::ClientContext& context);

}  // namespace warpcall::client
