// ExecuteGraph's messages as bytes of the protocol. Internal to the library.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cpp/codec/codec.h"
#include "client/cpp/rpc/channel.h"
#include "warpcall/graph.h"
#include "warpcall/v1/warpcall.pb.h"

namespace warpcall::client {

// An ExecuteGraphRequest, its tensors' data held as by EncodeCall.
std::vector<Piece> EncodeGraph(const GraphRequest& request,
                               const std::shared_ptr<const void>& borrowed_owner);

// Likewise without the tensors' data: for a graph that does not run.
v1::ExecuteGraphRequest GraphWithoutData(const GraphRequest& request);

// An ExecuteGraphResponse; tensor data are copied, once. INTERNAL when it is malformed, has another
// number of outputs than `outputs`, or a tensor's bytes do not fit its type and shape. Leaves
// `wall` and `attempts` alone.
absl::StatusOr<GraphResponse> DecodeGraph(Fragments message, size_t outputs);

}  // namespace warpcall::client
