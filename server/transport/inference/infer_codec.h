// ModelInfer's messages for a Call.
#pragma once

#include <google/protobuf/arena.h>
#include <grpcpp/support/slice.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "inference/grpc_service.pb.h"
#include "proto/wire/tensor_split.h"
#include "server/transport/call_codec.h"
#include "server/transport/inference/models.h"
#include "server/transport/inference/parameters.h"
#include "server/transport/inference/shared_regions.h"
#include "server/transport/inference/statistics.h"
#include "server/transport/slices.h"

namespace warpcall::oip {

// The objects that all calls of the service use; outlives the calls.
struct Door {
  Door(const Registry& registry, Clock clock, SharedRegions::HasEnded has_ended)
      : models(registry),
        statistics(models.all().size()),
        regions(std::move(clock), std::move(has_ended)) {}

  const Models models;
  Statistics statistics;
  SharedRegions regions;
};

inline constexpr char kModelStreamInfer[] = "ModelStreamInfer";

class InferCodec final : public CallCodec {
 public:
  // In a stream, answers say that no other one follows.
  InferCodec(Door* door, bool in_stream) : door_(door), in_stream_(in_stream) {}

  // As the request gave it; empty before Decode.
  const std::string& id() const { return header_->id(); }

  const char* method() const override { return in_stream_ ? kModelStreamInfer : "ModelInfer"; }
  // Sets the principal whose shared memory the request may use.
  void SetCaller(uint64_t principal) override { owner_ = principal; }
  absl::Status Decode(const grpc::ByteBuffer& message) override;
  absl::Status FindResidents(Residents* residents, absl::string_view owner) override;
  absl::StatusOr<CallSpec> Spec() override;
  absl::StatusOr<Problem> ToProblem(const Op& op) override;
  absl::StatusOr<JobInputs> Inputs(const Op& op, const Problem& problem) override;
  void ReleaseInputs() override;
  absl::Status Encode(Request* request, StagingBuffers outputs,
                      grpc::ByteBuffer* response) override;
  void RecordEnd(const RequestTrace& trace, const absl::Status& status) override;

 private:
  using InputTensor = inference::ModelInferRequest::InferInputTensor;

  // A tensor that lies in shared memory.
  struct Placed {
    std::shared_ptr<MappedRegion> memory;  // null: it does not
    RegionUse use;
  };

  absl::StatusOr<TensorSpec> ToSpec(const InputTensor& input) const;
  // Brings residents_ into the order of the op's inputs. FindInputs refuses other inputs.
  void OrderResidents(const Op& op);
  // Fills in order_.
  absl::Status FindInputs(const Op& op);
  absl::Status CheckOutputs(const Op& op);
  absl::StatusOr<Placed> Place(const Parameters& parameters);
  bool IsHandle(int input) const;
  // The data of one input; takes the next of the raw contents if it is there. None of one that is
  // on a device.
  absl::Status FindData(int input, size_t* raw, InputPieces* pieces);
  absl::Status CheckTypedContents(const InputTensor& input) const;
  // INVALID_ARGUMENT when a region that the request uses has lost its memory.
  absl::Status CheckRegions() const;

  Door* const door_;
  uint64_t owner_ = 0;
  const bool in_stream_;
  // Room for the header of an ordinary request, so that parsing one allocates nothing.
  alignas(8) char arena_block_[2048];
  google::protobuf::Arena arena_{arena_block_, sizeof(arena_block_)};
  inference::ModelInferRequest* header_ =
      google::protobuf::Arena::CreateMessage<inference::ModelInferRequest>(&arena_);
  Slices slices_;
  wire::SplitMessage split_;
  const Model* model_ = nullptr;  // null: not known yet, or unknown
  size_t model_index_ = 0;
  absl::InlinedVector<int, 2> order_;   // by the op's inputs: their places in the request
  std::vector<ResidentUse> residents_;  // by the request's inputs; from Spec on, by the op's
  absl::InlinedVector<Placed, 2> input_regions_;
  Placed output_;
};

}  // namespace warpcall::oip
