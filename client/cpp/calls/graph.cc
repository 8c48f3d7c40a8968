#include "client/cpp/calls/graph.h"

#include <vector>

#include "client/cpp/calls/borrowed.h"
#include "client/cpp/codec/graph_codec.h"
#include "client/cpp/rpc/methods.h"
#include "proto/common/status_macros.h"

namespace warpcall::client {

absl::StatusOr<GraphResponse> ExecuteGraphOnce(Connections* connections,
                                               const GraphRequest& request,
                                               const CallTerms& terms) {
  BorrowedBytes borrowed;
  std::vector<Piece> message = EncodeGraph(request, borrowed.owner());
  int attempts = 0;
  const Reply reply =
      connections->Call(connections->Next(), {kExecuteGraph, message, terms}, &attempts);
  message.clear();
  borrowed.WaitUntilReleased();
  // gRPC's answer for a method that a server does not know.
  if (absl::IsUnimplemented(reply.status) && reply.status.message().empty())
    return absl::UnimplementedError(
        "the server has no ExecuteGraph: it is older than this client; a newer warpcalld is "
        "needed");
  RETURN_IF_ERROR(reply.status);
  ASSIGN_OR_RETURN(GraphResponse response, DecodeGraph(reply.fragments, request.outputs.size()));
  response.attempts = attempts;
  return response;
}

}  // namespace warpcall::client
