// ExecuteGraph's messages.
#pragma once

#include <grpcpp/support/byte_buffer.h>

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/registry.h"
#include "proto/wire/tensor_split.h"
#include "server/transport/call_codec.h"
#include "server/transport/graph_request.h"
#include "server/transport/recent_graphs.h"
#include "server/transport/slices.h"
#include "warpcall/v1/warpcall.pb.h"

namespace warpcall {

// As ExecuteCodec: everything but tensor data is parsed, tensor data stay where gRPC received them.
class GraphCodec final : public CallCodec {
 public:
  // Both outlive it. `recent` may be null: the message is read whatever came before.
  GraphCodec(const Registry* registry, RecentGraphs* recent)
      : registry_(*registry), recent_(recent) {}

  const char* method() const override { return "ExecuteGraph"; }
  absl::Status Decode(const grpc::ByteBuffer& message) override;
  // As ExecuteCodec::Decode.
  absl::Status Decode(absl::Span<const wire::Bytes> fragments);
  absl::Status FindResidents(Residents* residents, absl::string_view owner) override;
  absl::StatusOr<CallSpec> Spec() override;
  absl::StatusOr<Problem> ToProblem(const Op& op) override;
  absl::StatusOr<JobInputs> Inputs(const Op& op, const Problem& problem) override;
  void ReleaseInputs() override;
  absl::Status Encode(Request* request, StagingBuffers outputs,
                      grpc::ByteBuffer* response) override;

  // In place of FindResidents, Spec and ToProblem: ReadChosenGraph of the message.
  absl::StatusOr<ChosenGraph> ReadChosen(const DeviceProperties& device);
  const v1::ExecuteGraphRequest& header() const { return header_->message; }
  const wire::SplitMessage& split() const { return split_; }

 private:
  const Registry& registry_;
  RecentGraphs* const recent_;
  Slices slices_;
  wire::SplitMessage split_;
  std::shared_ptr<GraphHeader> read_;  // null: the header is that of a recent request
  std::shared_ptr<const GraphHeader> header_;
  std::vector<ResidentUse> residents_;
};

}  // namespace warpcall
