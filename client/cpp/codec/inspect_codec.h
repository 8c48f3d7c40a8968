// Benchmark's, Profile's, Describe's and Push's messages as bytes of the protocol. Internal to the
// library.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cpp/codec/codec.h"
#include "client/cpp/rpc/channel.h"
#include "warpcall/inspect.h"

namespace warpcall::client {

// A BenchmarkRequest.
std::string EncodeBenchmark(const BenchmarkCall& call);
// A BenchmarkResponse, or a part of one.
absl::StatusOr<BenchmarkReport> DecodeBenchmark(Fragments message);
// INTERNAL for more results than one benchmark can have, as no server sends them.
absl::Status CheckResultCount(int results);

// A ProfileRequest, its tensors' data held as by EncodeCall.
std::vector<Piece> EncodeProfile(const ProfileCall& call,
                                 const std::shared_ptr<const void>& borrowed_owner);
// Likewise of a graph, whose outputs it does not keep.
std::vector<Piece> EncodeProfileGraph(const ProfileGraphCall& call,
                                      const std::shared_ptr<const void>& borrowed_owner);
absl::StatusOr<ProfileReport> DecodeProfile(Fragments message);

// A DescribeRequest.
std::string EncodeDescribe(const DescribeCall& call);
// Likewise of a graph, without its tensors' data.
std::string EncodeDescribeGraph(const GraphRequest& graph);
absl::StatusOr<Description> DecodeDescribe(Fragments message);

// A PushRequest.
std::string EncodePush(const PushCall& call);
absl::StatusOr<PushEvent> DecodePushEvent(Fragments message);

}  // namespace warpcall::client
