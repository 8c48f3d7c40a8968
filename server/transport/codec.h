// Between gRPC's bytes and the engine's types.
#pragma once

#include <google/protobuf/arena.h>
#include <google/protobuf/map.h>
#include <google/protobuf/repeated_field.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/registry.h"
#include "proto/common/check.h"
#include "proto/wire/tensor_split.h"
#include "server/engine/job.h"
#include "server/transport/call_codec.h"
#include "server/transport/slices.h"
#include "warpcall/v1/warpcall.pb.h"

namespace warpcall {

// A request taken apart: everything but tensor data parsed, tensor data where gRPC received it.
class DecodedRequest {
 public:
  // INVALID_ARGUMENT when `message` is no valid encoding of an ExecuteRequest, RESOURCE_EXHAUSTED
  // as DumpSlices. Holds references to the message's slices until ReleaseData.
  absl::Status Decode(const grpc::ByteBuffer& message);
  // Decodes a message that lies within another one. The owner of `fragments` keeps them until
  // ReleaseData.
  absl::Status Decode(absl::Span<const wire::Bytes> fragments);

  // Finds the owner's tensors that inputs name by handle, and gives those inputs their types and
  // shapes. INVALID_ARGUMENT where such an input has data, or another type or shape; NOT_FOUND as
  // Residents::Use.
  absl::Status FindResidents(Residents* residents, absl::string_view owner);

  // Its texts are the header's. Gives away what FindResidents found.
  CallSpec Spec();
  // INVALID_ARGUMENT when an input's data are not as long as its type and shape say.
  absl::Status CheckDataBytes(const Op& op, const Problem& problem) const;

  const v1::ExecuteRequest& header() const { return *header_; }
  // In place of a message.
  v1::ExecuteRequest* mutable_header() { return header_; }
  const wire::FragmentedBytes& data(size_t input) const {
    WARPCALL_CHECK(input < input_count(), input, input_count());
    return split_.tensor_data[input];
  }
  size_t input_count() const { return split_.tensor_data.size(); }

  // Drops the slices: data() is invalid from then on, header() is not.
  void ReleaseData();

 private:
  // Room for the header of an ordinary request, so that parsing one allocates nothing.
  alignas(8) char arena_block_[2048];
  google::protobuf::Arena arena_{arena_block_, sizeof(arena_block_)};
  v1::ExecuteRequest* header_ = google::protobuf::Arena::CreateMessage<v1::ExecuteRequest>(&arena_);
  Slices slices_;
  wire::SplitMessage split_;
  std::vector<ResidentUse> residents_;  // by input; empty: none is
};

// INVALID_ARGUMENT where an input's type and shape beside its handle, `stated`, are not the
// tensor's. `label` opens the message.
absl::Status CheckStated(absl::string_view label, const TensorSpec& stated,
                         const ResidentContent& content);
// INVALID_ARGUMENT for an unknown type or an impossible shape; `label` opens the message.
absl::StatusOr<TensorSpec> ToTensorSpec(const v1::Tensor& tensor, absl::string_view label);
// Returns the request's problem after checking all types, shapes and attributes.
absl::StatusOr<Problem> ToProblem(const v1::ExecuteRequest& header, const Op& op);
// As above, for inputs without data.
absl::StatusOr<Problem> ToProblem(
    const google::protobuf::RepeatedPtrField<v1::TensorSpec>& inputs,
    const google::protobuf::Map<std::string, v1::Attribute>& attributes, const Op& op);

// Fills in request id, implementation and device.
void DescribeChoice(const Request& request, v1::ExecuteResponse* response);
// Fills in a response except its outputs: timing and launch, from the trace. Stops the request's
// clock.
void Describe(Request* request, v1::ExecuteResponse* response);

// A slice over the buffer's bytes, which gives the buffer back when gRPC has sent them.
grpc::Slice SliceOver(StagingBuffer buffer);

// One message: `rest` (an ExecuteResponse without outputs) and the outputs, whose bytes stay where
// they are, unless `rest` has them: handles of outputs that stay on the device. Gives the buffers
// back when gRPC has sent them.
void EncodeResponse(const v1::ExecuteResponse& rest, const Problem& problem, StagingBuffers outputs,
                    grpc::ByteBuffer* message);

}  // namespace warpcall
