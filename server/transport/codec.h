// Between gRPC's bytes and the engine's types.
#pragma once

#include <google/protobuf/arena.h>
#include <google/protobuf/map.h>
#include <google/protobuf/message_lite.h>
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

// Execute's messages. Takes a request apart: everything but tensor data is parsed, tensor data stay
// where gRPC received them.
class ExecuteCodec final : public CallCodec {
 public:
  const char* method() const override { return "Execute"; }
  // Holds references to the message's slices until ReleaseInputs.
  absl::Status Decode(const grpc::ByteBuffer& message) override;
  // Decodes a message that lies within another one. The owner of `fragments` keeps them until
  // ReleaseInputs.
  absl::Status Decode(absl::Span<const wire::Bytes> fragments);
  // Gives inputs that are named by handle their types and shapes. INVALID_ARGUMENT where such an
  // input has data, or another type or shape.
  absl::Status FindResidents(Residents* residents, absl::string_view owner) override;
  // Its texts are the header's. Gives away what FindResidents found.
  absl::StatusOr<CallSpec> Spec() override;
  absl::StatusOr<Problem> ToProblem(const Op& op) override;
  absl::StatusOr<JobInputs> Inputs(const Op& op, const Problem& problem) override;
  // Drops the slices: data() is invalid from then on, header() is not.
  void ReleaseInputs() override;
  absl::Status Encode(Request* request, StagingBuffers outputs,
                      grpc::ByteBuffer* response) override;

  const v1::ExecuteRequest& header() const { return *header_; }
  // In place of a message.
  v1::ExecuteRequest* mutable_header() { return header_; }
  const wire::SplitMessage& split() const { return split_; }
  const wire::FragmentedBytes& data(size_t input) const {
    WARPCALL_CHECK(input < input_count(), input, input_count());
    return split_.tensor_data[input];
  }
  size_t input_count() const { return split_.tensor_data.size(); }

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
// An input of a message. `label` opens messages about it.
struct NamedInput {
  std::string label;
  const v1::Tensor* tensor;
  size_t data_bytes;  // of its data, which are not in `tensor`
};
struct HandleOwner {
  Residents* residents;
  absl::string_view name;
};
// Finds the owner's tensors that inputs name by handle. INVALID_ARGUMENT where such an input has
// data; NOT_FOUND as Residents::Use.
absl::StatusOr<std::vector<ResidentUse>> UseHandles(const HandleOwner& owner,
                                                    absl::Span<const NamedInput> inputs);
// Gives an input the type and the shape of its tensor that stays; does nothing for other inputs.
// INVALID_ARGUMENT where the input has other ones. `label` opens the message.
absl::Status CompleteSpec(absl::string_view label, const ResidentUse& use, v1::Tensor* input);
// INVALID_ARGUMENT where `spec` takes another number of bytes. `label` opens the message.
absl::Status CheckDataBytes(absl::string_view label, size_t bytes, const TensorSpec& spec);

// The problem of inputs of these types and shapes, after a check of all attributes.
absl::StatusOr<Problem> ToProblem(
    absl::Span<const TensorSpec> inputs,
    const google::protobuf::Map<std::string, v1::Attribute>& attributes, const Op& op);
// Returns the problem of inputs without data after checking all types, shapes and attributes.
absl::StatusOr<Problem> ToProblem(
    const google::protobuf::RepeatedPtrField<v1::TensorSpec>& inputs,
    const google::protobuf::Map<std::string, v1::Attribute>& attributes, const Op& op);

void FillIn(const RequestTrace& trace, v1::Timing* timing);
// Fills in request id, implementation and device.
void DescribeChoice(const Request& request, v1::ExecuteResponse* response);
// Fills in a response except its outputs: timing and launch, from the trace. Stops the request's
// clock.
void Describe(Request* request, v1::ExecuteResponse* response);
// Adds an output for each of the request's, if one of them stays on the device: with the handles of
// those that do.
void AddKept(const Request& request, v1::ExecuteResponse* response);

// A slice over the buffer's bytes, which gives the buffer back when gRPC has sent them.
grpc::Slice SliceOver(StagingBuffer buffer);

// One message: `rest`, an ExecuteResponse or ExecuteGraphResponse without outputs, and the outputs,
// whose bytes stay where they are; handles of those that stay on the device. Gives the buffers back
// when gRPC has sent them.
void EncodeResponse(const Request& request, const google::protobuf::MessageLite& rest,
                    StagingBuffers outputs, grpc::ByteBuffer* message);

}  // namespace warpcall
