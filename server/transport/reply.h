// Answers of methods that need no engine: made where the call arrives.
#pragma once

#include <grpcpp/grpcpp.h>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "server/transport/caller.h"
#include "server/transport/request.h"
#include "server/transport/status.h"

namespace warpcall {

// Has `fill` make the response, if the caller may call `method`; OK, or why there is none.
inline grpc::ServerUnaryReactor* Reply(const ExecuteDeps& deps,
                                       grpc::CallbackServerContext* context,
                                       absl::string_view method,
                                       absl::FunctionRef<absl::Status()> fill) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  absl::Status status = Admit(deps, Identify(deps, *context), method).status();
  if (status.ok()) status = fill();
  reactor->Finish(ToGrpcStatus(status));
  return reactor;
}

}  // namespace warpcall
