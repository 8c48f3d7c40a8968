#include "server/transport/graph_codec.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/graph/step_graph.h"
#include "proto/common/check.h"
#include "proto/common/status_macros.h"
#include "server/inspect/describe.h"
#include "server/transport/codec.h"
#include "server/transport/request.h"

namespace warpcall {

absl::Status GraphCodec::Decode(const grpc::ByteBuffer& message) {
  RETURN_IF_ERROR(DumpSlices(message, &slices_));
  absl::InlinedVector<wire::Bytes, 8> fragments;
  for (const grpc::Slice& slice : slices_) fragments.push_back(BytesOf(slice));
  return Decode(fragments);
}

absl::Status GraphCodec::Decode(absl::Span<const wire::Bytes> fragments) {
  RETURN_IF_ERROR(wire::SplitGraph(fragments, &split_));
  if (recent_ != nullptr) header_ = recent_->Find(split_.header);
  if (header_ != nullptr) return absl::OkStatus();
  read_ = std::make_shared<GraphHeader>();
  header_ = read_;
  if (!read_->message.ParseFromString(split_.header))
    return absl::InvalidArgumentError(
        "the message is not a valid ExecuteGraphRequest: protobuf cannot parse its fields");
  for (const v1::GraphInput& input : read_->message.inputs())
    read_->labels.push_back(GraphInputLabel(input.name()));
  return absl::OkStatus();
}

void GraphCodec::ReleaseInputs() {
  slices_.Clear();
  split_.tensor_data.clear();
}

absl::Status GraphCodec::FindResidents(Residents* residents, absl::string_view owner) {
  if (read_ != nullptr) {
    // First, so that every later message may name inputs and steps.
    ASSIGN_OR_RETURN(read_->wishes, ReadGraphWishes(read_->message, registry_));
  }
  std::vector<NamedInput> inputs;
  for (const v1::GraphInput& input : header_->message.inputs())
    inputs.push_back({header_->labels[inputs.size()], &input.tensor(),
                      split_.tensor_data[inputs.size()].size});
  ASSIGN_OR_RETURN(residents_, UseHandles({residents, owner}, inputs));
  for (size_t i = 0; read_ != nullptr && i < residents_.size(); ++i)
    RETURN_IF_ERROR(
        CompleteSpec(inputs[i].label, residents_[i],
                     read_->message.mutable_inputs(static_cast<int>(i))->mutable_tensor()));
  return absl::OkStatus();
}

absl::StatusOr<CallSpec> GraphCodec::Spec() {
  return CallSpec{.device = header_->message.device(),
                  .request_id = header_->message.request_id(),
                  .residents = std::move(residents_),
                  .input_labels = header_->labels,
                  .steps = header_->wishes.steps,
                  .keeps = header_->wishes.keeps};
}

absl::StatusOr<ChosenGraph> GraphCodec::ReadChosen(const DeviceProperties& device) {
  WARPCALL_CHECK(read_ != nullptr);
  return ReadChosenGraph(registry_, device, &read_->message);
}

absl::StatusOr<Problem> GraphCodec::ToProblem(const Op&) {
  if (read_ != nullptr) {
    ASSIGN_OR_RETURN(read_->problem, ReadGraph(read_->message, read_->wishes.steps));
    if (recent_ != nullptr) recent_->Keep(split_.header, std::move(read_));
  }
  return header_->problem;
}

absl::StatusOr<JobInputs> GraphCodec::Inputs(const Op&, const Problem& problem) {
  JobInputs inputs;
  WARPCALL_CHECK(problem.inputs.size() == split_.tensor_data.size(), problem.inputs.size(),
                 split_.tensor_data.size());
  for (size_t i = 0; i < problem.inputs.size(); ++i) {
    inputs.push_back(split_.tensor_data[i].pieces);
    if (!header_->message.inputs(static_cast<int>(i)).tensor().handle().empty()) continue;
    RETURN_IF_ERROR(
        CheckDataBytes(header_->labels[i], split_.tensor_data[i].size, problem.inputs[i]));
  }
  return inputs;
}

absl::Status GraphCodec::Encode(Request* request, StagingBuffers outputs,
                                grpc::ByteBuffer* response) {
  RETURN_IF_ERROR(request->NameOutputs());
  request->StopClock();
  v1::ExecuteGraphResponse rest;
  const RequestTrace& trace = request->trace();
  const std::vector<StepQuestion>& steps = header_->wishes.steps;
  WARPCALL_CHECK(trace.graph != nullptr && trace.graph->launches.size() == steps.size());
  const StepGraph& graph = *trace.graph->graph;
  for (size_t i = 0; i < steps.size(); ++i) {
    v1::GraphStepResult& result = *rest.add_steps();
    const Step& step = graph.steps()[i];
    result.set_name(steps[i].name);
    result.set_implementation(FamilyName(step.row->implementation.family));
    if (graph.times_steps() && i < trace.graph->step_ns.size())
      result.set_kernel_ns(trace.graph->step_ns[i]);
    *result.mutable_launch() = inspect::LaunchInfoOf(
        step.row->implementation, graph.WorkOf(i), trace.graph->launches[i]);
  }
  rest.set_device(request->device());
  FillIn(trace, rest.mutable_timing());
  rest.set_request_id(request->request_id());
  rest.set_resident_bytes(request->resident_bytes());
  rest.set_intermediate_bytes(static_cast<int64_t>(graph.arena_bytes()));
  rest.set_replayed(trace.graph->replayed);
  EncodeResponse(*request, rest, std::move(outputs), response);
  return absl::OkStatus();
}

}  // namespace warpcall
