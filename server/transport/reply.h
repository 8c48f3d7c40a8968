// Answers of methods that need no engine: made where the call arrives.
#pragma once

#include <google/protobuf/message_lite.h>
#include <grpcpp/grpcpp.h>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "server/transport/caller.h"
#include "server/transport/request.h"
#include "server/transport/unary.h"

namespace warpcall {

// The largest request of a method that takes no tensors.
inline constexpr int64_t kSmallMessageBytesMax = int64_t{64} << 10;

// RESOURCE_EXHAUSTED for more than kSmallMessageBytesMax.
absl::Status CheckSmallMessageLength(int64_t bytes);

// Parses `message`, inflating it where it came compressed. RESOURCE_EXHAUSTED for more than
// kSmallMessageBytesMax, before anything is allocated for it.
absl::Status ParseSmallMessage(const ExecuteDeps& deps, grpc::ByteBuffer* message,
                               google::protobuf::MessageLite* parsed);

grpc::ByteBuffer ToByteBuffer(const google::protobuf::MessageLite& message);

// Has `fill` make the response to a principal, if it may call `method`; OK, or why there is none.
template <typename Request, typename Response>
grpc::ServerUnaryReactor* ReplyTo(
    const ExecuteDeps& deps, const Unary& unary, absl::string_view method,
    absl::FunctionRef<absl::Status(const Principal&, const Request&, Response*)> fill) {
  grpc::ServerUnaryReactor* const reactor = unary.context->DefaultReactor();
  const absl::StatusOr<Principal> caller = Identify(deps, *unary.context);
  absl::StatusOr<Admission> admission = Admit(deps, caller, method);
  absl::Status status = admission.status();
  Request request;
  Response response;
  if (status.ok()) status = ParseSmallMessage(deps, unary.message(), &request);
  if (status.ok()) status = fill(*caller, request, &response);
  if (status.ok()) *unary.response = ToByteBuffer(response);
  reactor->Finish(EndOf(status, unary.context));
  return reactor;
}

// The same, whoever it is.
template <typename Request, typename Response>
grpc::ServerUnaryReactor* Reply(const ExecuteDeps& deps, const Unary& unary,
                                absl::string_view method,
                                absl::FunctionRef<absl::Status(const Request&, Response*)> fill) {
  return ReplyTo<Request, Response>(
      deps, unary, method, [fill](const Principal&, const Request& request, Response* response) {
        return fill(request, response);
      });
}

// The same for callers that nobody identifies: health is answered to everybody.
template <typename Request, typename Response>
grpc::ServerUnaryReactor* ReplyToAll(
    const ExecuteDeps& deps, const Unary& unary,
    absl::FunctionRef<absl::Status(const Request&, Response*)> fill) {
  grpc::ServerUnaryReactor* const reactor = unary.context->DefaultReactor();
  Request request;
  Response response;
  absl::Status status = ParseSmallMessage(deps, unary.message(), &request);
  if (status.ok()) status = fill(request, &response);
  if (status.ok()) *unary.response = ToByteBuffer(response);
  reactor->Finish(EndOf(status, unary.context));
  return reactor;
}

}  // namespace warpcall
