// Answers of methods that need no engine: made where the call arrives.
#pragma once

#include <grpcpp/grpcpp.h>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "server/transport/caller.h"
#include "server/transport/request.h"

namespace warpcall {

// Has `fill` make the response to a principal, if it may call `method`; OK, or why there is none.
inline grpc::ServerUnaryReactor* ReplyTo(const ExecuteDeps& deps,
                                         grpc::CallbackServerContext* context,
                                         absl::string_view method,
                                         absl::FunctionRef<absl::Status(const Principal&)> fill) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  const absl::StatusOr<Principal> caller = Identify(deps, *context);
  absl::Status status = Admit(deps, caller, method).status();
  if (status.ok()) status = fill(*caller);
  reactor->Finish(EndOf(status, context));
  return reactor;
}

// The same, whoever it is.
inline grpc::ServerUnaryReactor* Reply(const ExecuteDeps& deps,
                                       grpc::CallbackServerContext* context,
                                       absl::string_view method,
                                       absl::FunctionRef<absl::Status()> fill) {
  return ReplyTo(deps, context, method, [fill](const Principal&) { return fill(); });
}

}  // namespace warpcall
