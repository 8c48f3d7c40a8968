// Execute's messages for a Call.
#pragma once

#include <memory>

#include "server/transport/call_codec.h"
#include "server/transport/codec.h"

namespace warpcall {

class ExecuteCodec final : public CallCodec {
 public:
  const char* method() const override { return "Execute"; }
  absl::Status Decode(const grpc::ByteBuffer& message) override;
  absl::Status FindResidents(Residents* residents, absl::string_view owner) override;
  absl::StatusOr<CallSpec> Spec() override { return decoded_.Spec(); }
  absl::StatusOr<Problem> ToProblem(const Op& op) override;
  absl::StatusOr<JobInputs> Inputs(const Op& op, const Problem& problem) override;
  void ReleaseInputs() override { decoded_.ReleaseData(); }
  absl::Status Encode(Request* request, StagingBuffers outputs,
                      grpc::ByteBuffer* response) override;
  void RecordEnd(const RequestTrace&, const absl::Status&) override {}

 private:
  DecodedRequest decoded_;
};

}  // namespace warpcall
