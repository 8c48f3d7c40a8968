// Answers of methods that need no engine: made where the call arrives.
#pragma once

#include <google/protobuf/message_lite.h>
#include <grpcpp/grpcpp.h>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "proto/common/status_macros.h"
#include "server/transport/caller.h"
#include "server/transport/request.h"
#include "server/transport/watched_reactors.h"

namespace warpcall {

// The largest request of a method that takes no tensors.
inline constexpr int64_t kSmallMessageBytesMax = int64_t{64} << 10;

// RESOURCE_EXHAUSTED for more than `most`, the method's own limit.
absl::Status CheckMessageLengthOf(int64_t bytes, int64_t most);

// Parses `message`, inflating it where it came compressed. RESOURCE_EXHAUSTED for more than
// kSmallMessageBytesMax, before anything is allocated for it.
absl::Status ParseSmallMessage(const ExecuteDeps& deps, grpc::ByteBuffer* message,
                               google::protobuf::MessageLite* parsed);

// A call that was not admitted.
struct Refusal {
  absl::string_view method;
  const absl::StatusOr<Principal>& caller;
  const absl::Status& status;
};
// Logs it as Execute logs its own; FailureLog bounds how many lines there are.
void LogRefusal(const ExecuteDeps& deps, const grpc::CallbackServerContext& context,
                const Refusal& refusal);

grpc::ByteBuffer ToByteBuffer(const google::protobuf::MessageLite& message);

// Has `answer` write the response to a principal that may call `method`; refuses others.
template <typename Request>
absl::Status AnswerTo(const ExecuteDeps& deps, const Unary& unary, absl::string_view method,
                      absl::FunctionRef<absl::Status(const Principal&, const Request&)> answer) {
  const absl::StatusOr<Principal> caller = Identify(deps, *unary.context);
  const absl::StatusOr<Admission> admission = Admit(deps, caller, method);
  if (!admission.ok()) {
    LogRefusal(deps, *unary.context, {method, caller, admission.status()});
    return admission.status();
  }
  Request request;
  RETURN_IF_ERROR(ParseSmallMessage(deps, unary.message(), &request));
  return answer(*caller, request);
}

// Answers a principal that may call `method`; refuses others.
template <typename Request, typename Response>
grpc::ServerUnaryReactor* ReplyTo(
    const ExecuteDeps& deps, const Unary& unary, absl::string_view method,
    absl::FunctionRef<absl::Status(const Principal&, const Request&, Response*)> fill) {
  auto* const reactor = new WatchedUnary(deps, unary);
  const absl::Status status = AnswerTo<Request>(
      deps, unary, method, [&](const Principal& caller, const Request& request) -> absl::Status {
        Response response;
        RETURN_IF_ERROR(fill(caller, request, &response));
        *unary.response = ToByteBuffer(response);
        return absl::OkStatus();
      });
  reactor->Finish(EndOf(status, unary.context));
  return reactor;
}

// As ReplyTo, where the answer is the same for every principal.
template <typename Request, typename Response>
grpc::ServerUnaryReactor* Reply(const ExecuteDeps& deps, const Unary& unary,
                                absl::string_view method,
                                absl::FunctionRef<absl::Status(const Request&, Response*)> fill) {
  return ReplyTo<Request, Response>(
      deps, unary, method, [fill](const Principal&, const Request& request, Response* response) {
        return fill(request, response);
      });
}

// Answers every caller: health asks for no token.
template <typename Request, typename Response>
grpc::ServerUnaryReactor* ReplyToAll(
    const ExecuteDeps& deps, const Unary& unary,
    absl::FunctionRef<absl::Status(const Request&, Response*)> fill) {
  auto* const reactor = new WatchedUnary(deps, unary);
  Request request;
  Response response;
  absl::Status status = ParseSmallMessage(deps, unary.message(), &request);
  if (status.ok()) status = fill(request, &response);
  if (status.ok()) *unary.response = ToByteBuffer(response);
  reactor->Finish(EndOf(status, unary.context));
  return reactor;
}

}  // namespace warpcall
