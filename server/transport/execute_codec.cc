#include "server/transport/execute_codec.h"

#include <utility>

#include "proto/common/status_macros.h"
#include "server/transport/request.h"

namespace warpcall {

absl::Status ExecuteCodec::Decode(const grpc::ByteBuffer& message) {
  return decoded_.Decode(message);
}

absl::Status ExecuteCodec::FindResidents(Residents* residents, absl::string_view owner) {
  return decoded_.FindResidents(residents, owner);
}

absl::StatusOr<Problem> ExecuteCodec::ToProblem(const Op& op) {
  return warpcall::ToProblem(decoded_.header(), op);
}

absl::StatusOr<JobInputs> ExecuteCodec::Inputs(const Op& op, const Problem& problem) {
  RETURN_IF_ERROR(decoded_.CheckDataBytes(op, problem));
  JobInputs inputs;
  for (size_t i = 0; i < problem.inputs.size(); ++i) inputs.push_back(decoded_.data(i).pieces);
  return inputs;
}

absl::Status ExecuteCodec::Encode(Request* request, StagingBuffers outputs,
                                  grpc::ByteBuffer* response) {
  alignas(8) char block[1024];  // room for the response without its outputs
  google::protobuf::Arena arena(block, sizeof(block));
  auto* rest = google::protobuf::Arena::CreateMessage<v1::ExecuteResponse>(&arena);
  RETURN_IF_ERROR(request->NameOutputs());
  Describe(request, rest);
  EncodeResponse(*rest, request->problem(), std::move(outputs), response);
  return absl::OkStatus();
}

}  // namespace warpcall
