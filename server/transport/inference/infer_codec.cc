#include "server/transport/inference/infer_codec.h"

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/common/status_macros.h"
#include "proto/wire/infer_split.h"
#include "server/engine/host_copy.h"
#include "server/transport/codec.h"
#include "server/transport/inference/signature.h"
#include "server/transport/request.h"

namespace warpcall::oip {
namespace {

using inference::ModelInferRequest;
using inference::ModelInferResponse;

// The header of a response with one output of a few dimensions.
constexpr size_t kHeaderBytesUsual = 256;

absl::Status Mixed() {
  return absl::InvalidArgumentError(
      "contents field must not be specified when using raw_input_contents: the inputs' data come "
      "in "
      "one of them");
}

absl::Status CheckNoData(const ModelInferRequest::InferInputTensor& input) {
  absl::optional<RegionUse> region;
  ASSIGN_OR_RETURN(region, ReadRegionUse(input.parameters()));
  if (!input.has_contents() && !region.has_value()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("input '", input.name(), "' has both a handle and ",
                   input.has_contents() ? "contents" : "a shared memory region"));
}

// Gives the input the type and the shape of `content`, unless it has them.
absl::Status Complete(const ResidentContent& content, ModelInferRequest::InferInputTensor* input) {
  if (!input->datatype().empty() || !input->shape().empty()) {
    const std::string label = absl::StrCat("input '", input->name(), "'");
    const absl::StatusOr<DataType> type = ToDataType(input->datatype());
    if (!type.ok())
      return absl::InvalidArgumentError(absl::StrCat(label, ": ", type.status().message()));
    RETURN_IF_ERROR(
        CheckStated(label, {*type, {input->shape().begin(), input->shape().end()}}, content));
  }
  input->set_datatype(WireTypeName(content.spec().data_type));
  input->mutable_shape()->Assign(content.spec().dims.begin(), content.spec().dims.end());
  return absl::OkStatus();
}

}  // namespace

absl::Status InferCodec::Decode(const grpc::ByteBuffer& message) {
  RETURN_IF_ERROR(DumpSlices(message, &slices_));
  absl::InlinedVector<wire::Bytes, 8> fragments;
  for (const grpc::Slice& slice : slices_) fragments.push_back(BytesOf(slice));
  RETURN_IF_ERROR(wire::SplitInferRequest(fragments, &split_));
  if (!header_->ParseFromString(split_.header))
    return absl::InvalidArgumentError(
        "the message is not a valid ModelInferRequest: protobuf cannot parse its fields");
  return absl::OkStatus();
}

absl::Status InferCodec::FindResidents(Residents* residents, absl::string_view owner) {
  absl::InlinedVector<absl::string_view, 2> handles;
  for (const InputTensor& input : header_->inputs()) {
    handles.emplace_back();
    ASSIGN_OR_RETURN(handles.back(), ReadHandle(input.parameters()));
    if (!handles.back().empty()) RETURN_IF_ERROR(CheckNoData(input));
  }
  ASSIGN_OR_RETURN(residents_, residents->Use(owner, handles));
  for (size_t i = 0; i < residents_.size(); ++i)
    if (const ResidentContentPtr content = residents_[i].content(); content != nullptr)
      RETURN_IF_ERROR(Complete(*content, header_->mutable_inputs(static_cast<int>(i))));
  return absl::OkStatus();
}

void InferCodec::OrderResidents(const Op& op) {
  std::vector<ResidentUse> ordered;
  for (size_t i = 0; i < residents_.size(); ++i) {
    const std::string& name = header_->inputs(static_cast<int>(i)).name();
    const auto found = absl::c_find_if(op.input_names, [&](const char* n) { return name == n; });
    if (residents_[i].content() == nullptr || found == op.input_names.end()) continue;
    const auto place = static_cast<size_t>(found - op.input_names.begin());
    ordered.resize(std::max(ordered.size(), place + 1));
    ordered[place] = std::move(residents_[i]);
  }
  residents_ = std::move(ordered);
}

absl::StatusOr<CallSpec> InferCodec::Spec() {
  ASSIGN_OR_RETURN(model_index_,
                   door_->models.Find(header_->model_name(), header_->model_version()));
  model_ = &door_->models.all()[model_index_];
  CallParameters parameters;
  ASSIGN_OR_RETURN(parameters, ReadCallParameters(header_->parameters()));
  const absl::string_view asked = parameters.implementation;
  if (!model_->implementation.empty() && !Registry::IsAuto(asked) &&
      asked != model_->implementation)
    return absl::InvalidArgumentError(absl::StrCat(
        "parameter \"implementation\" is \"", asked, "\", but the model ", model_->name, " is ",
        model_->implementation, "; leave it out, or ask for ", model_->kernel->op->name));
  OrderResidents(*model_->kernel->op);
  return CallSpec{.kernel = model_->kernel->op->name,
                  .implementation = model_->implementation.empty() ? asked : model_->implementation,
                  .device = parameters.device,
                  .request_id = header_->id(),
                  .timeout_ns = parameters.timeout_ns,
                  .residents = std::move(residents_)};
}

absl::StatusOr<Problem> InferCodec::ToProblem(const Op& op) {
  RETURN_IF_ERROR(FindInputs(op));
  RETURN_IF_ERROR(CheckOutputs(op));
  absl::InlinedVector<TensorSpec, 2> specs;
  for (const int input : order_) {
    specs.emplace_back();
    ASSIGN_OR_RETURN(specs.back(), ToSpec(header_->inputs(input)));
  }
  std::vector<NamedAttribute> attributes;
  ASSIGN_OR_RETURN(attributes, ReadAttributes(header_->parameters(), op));
  return MakeProblem(op, specs, attributes);
}

absl::StatusOr<TensorSpec> InferCodec::ToSpec(const InputTensor& input) const {
  TensorSpec spec;
  absl::StatusOr<DataType> type = ToDataType(input.datatype());
  if (!type.ok())
    return absl::InvalidArgumentError(
        absl::StrCat("input \"", input.name(), "\": ", type.status().message()));
  if (model_->data_type.value_or(*type) != *type)
    return absl::InvalidArgumentError(absl::StrCat(
        "input \"", input.name(), "\" has datatype ", input.datatype(), ", but the model ",
        model_->name, " takes ", WireTypeName(*model_->data_type)));
  spec.data_type = *type;
  spec.dims.assign(input.shape().begin(), input.shape().end());
  return spec;
}

absl::Status InferCodec::FindInputs(const Op& op) {
  absl::InlinedVector<int, 8> places(op.input_names.size(), -1);
  for (int i = 0; i < header_->inputs_size(); ++i) {
    const std::string& name = header_->inputs(i).name();
    const auto found = absl::c_find_if(op.input_names, [&](const char* n) { return name == n; });
    if (found == op.input_names.end())
      return absl::InvalidArgumentError(
          absl::StrCat("unexpected inference input '", name, "' for model '", model_->name,
                       "'; inputs: ", absl::StrJoin(op.input_names, ", ")));
    int& place = places[static_cast<size_t>(found - op.input_names.begin())];
    if (place >= 0)
      return absl::InvalidArgumentError(
          absl::StrCat("input '", name, "' already exists in request: it is given twice"));
    place = i;
  }
  // An op whose number of inputs is not fixed has them from the first one on.
  for (size_t i = 0; i < places.size(); ++i) {
    if (places[i] >= 0 && i == order_.size()) {
      order_.push_back(places[i]);
    } else if (places[i] >= 0 || op.inputs_min == 0 || i < op.inputs_min) {
      return absl::InvalidArgumentError(
          absl::StrCat("input '", op.input_names[order_.size()], "' of model '", model_->name,
                       "' is missing; inputs: ", absl::StrJoin(op.input_names, ", ")));
    }
  }
  return absl::OkStatus();
}

absl::Status InferCodec::CheckOutputs(const Op& op) {
  const char* const output = OutputName(op);
  for (int i = 0; i < header_->outputs_size(); ++i) {
    const auto& requested = header_->outputs(i);
    if (requested.name() != output)
      return absl::InvalidArgumentError(absl::StrCat("unexpected inference output '",
                                                     requested.name(), "' for model '",
                                                     model_->name, "'; outputs: ", output));
    if (i > 0)
      return absl::InvalidArgumentError(
          absl::StrCat("output '", output, "' already requested: it is given twice"));
    RETURN_IF_ERROR(CheckNoClassification(requested.parameters()));
    ASSIGN_OR_RETURN(output_, Place(requested.parameters()));
  }
  return absl::OkStatus();
}

absl::StatusOr<InferCodec::Placed> InferCodec::Place(const Parameters& parameters) {
  absl::optional<RegionUse> use;
  ASSIGN_OR_RETURN(use, ReadRegionUse(parameters));
  Placed placed;
  if (!use.has_value()) return placed;
  placed.use = *use;
  ASSIGN_OR_RETURN(placed.memory, door_->regions.Use(owner_, *use));
  return placed;
}

absl::StatusOr<JobInputs> InferCodec::Inputs(const Op& op, const Problem& problem) {
  if (output_.memory != nullptr && output_.use.bytes < problem.outputs[0].bytes())
    return absl::InvalidArgumentError(absl::StrCat(
        "shared memory size specified with the request for output '", OutputName(op), "' (",
        output_.use.bytes, " bytes) should be at least ", problem.outputs[0].bytes(), " bytes"));
  std::vector<InputPieces> in_message_order(static_cast<size_t>(header_->inputs_size()));
  size_t raw = 0;
  for (int i = 0; i < header_->inputs_size(); ++i)
    RETURN_IF_ERROR(FindData(i, &raw, &in_message_order[static_cast<size_t>(i)]));
  if (raw != split_.raw_data.size())
    return absl::InvalidArgumentError(
        absl::StrCat("raw_input_contents has ", split_.raw_data.size(), " entries, but ", raw,
                     " inputs are in neither shared memory nor contents and have no handle"));
  JobInputs inputs;
  for (size_t i = 0; i < order_.size(); ++i) {
    InputPieces& pieces = in_message_order[static_cast<size_t>(order_[i])];
    size_t bytes = 0;
    for (const absl::Span<const char>& piece : pieces) bytes += piece.size();
    if (bytes != problem.inputs[i].bytes() && !IsHandle(order_[i]))
      return absl::InvalidArgumentError(
          absl::StrCat("input '", op.input_names[i], "' has ", bytes, " bytes of data, but ",
                       ToString(problem.inputs[i]), " takes ", problem.inputs[i].bytes()));
    inputs.push_back(std::move(pieces));
  }
  return inputs;
}

// REQUIRES: FindResidents was OK.
bool InferCodec::IsHandle(int input) const {
  return !ReadHandle(header_->inputs(input).parameters())->empty();
}

absl::Status InferCodec::FindData(int input, size_t* raw, InputPieces* pieces) {
  const InputTensor& tensor = header_->inputs(input);
  if (IsHandle(input)) return absl::OkStatus();
  Placed placed;
  ASSIGN_OR_RETURN(placed, Place(tensor.parameters()));
  if (tensor.has_contents()) {
    if (!split_.raw_data.empty()) return Mixed();
    if (placed.memory != nullptr)
      return absl::InvalidArgumentError(
          absl::StrCat("input '", tensor.name(), "' has contents and a shared memory region"));
    RETURN_IF_ERROR(CheckTypedContents(tensor));
    *pieces = split_.tensor_data[static_cast<size_t>(input)].pieces;
    return absl::OkStatus();
  }
  if (placed.memory != nullptr) {
    pieces->emplace_back(placed.memory->data() + placed.use.offset, placed.use.bytes);
    input_regions_.push_back(std::move(placed));
    return absl::OkStatus();
  }
  if (*raw < split_.raw_data.size()) {
    *pieces = split_.raw_data[(*raw)++].pieces;
    return absl::OkStatus();
  }
  // Where there are no raw contents at all, an input without elements needs none.
  if (split_.raw_data.empty() && absl::c_linear_search(tensor.shape(), 0)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "input '", tensor.name(), "' has no data: raw_input_contents has ", split_.raw_data.size(),
      " entries, and the input neither contents nor a region nor a handle"));
}

absl::Status InferCodec::CheckTypedContents(const InputTensor& input) const {
  const inference::InferTensorContents& contents = input.contents();
  const bool has_others = contents.bool_contents_size() + contents.int_contents_size() +
                              contents.int64_contents_size() + contents.uint_contents_size() +
                              contents.uint64_contents_size() + contents.fp64_contents_size() +
                              contents.bytes_contents_size() >
                          0;
  if (input.datatype() == WireTypeName(DataType::kFloat32) && !has_others) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("input '", input.name(), "' of datatype ", input.datatype(),
                   " has contents of another: only FP32 comes as fp32_contents, all else in "
                   "raw_input_contents"));
}

void InferCodec::ReleaseInputs() {
  slices_.Clear();
  split_.tensor_data.clear();
  split_.raw_data.clear();
}

absl::Status InferCodec::CheckRegions() const {
  bool lost = output_.memory != nullptr && output_.memory->lost();
  for (const Placed& input : input_regions_) lost = lost || input.memory->lost();
  if (!lost) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "a shared memory region's object was made smaller than it was when it was registered");
}

absl::Status InferCodec::Encode(Request* request, StagingBuffers outputs,
                                grpc::ByteBuffer* response) {
  const TensorSpec& spec = request->problem().outputs[0];
  if (output_.memory != nullptr && spec.bytes() > 0) {
    CopyCounter copied;
    CopyOnHost(output_.memory->data() + output_.use.offset, {outputs[0].data(), spec.bytes()},
               &copied);
    request->trace().copy_out_bytes += copied.bytes();
  }
  RETURN_IF_ERROR(CheckRegions());
  request->StopClock();
  alignas(8) char block[2048];  // room for the response without its outputs
  google::protobuf::Arena arena(block, sizeof(block));
  auto* const rest = google::protobuf::Arena::CreateMessage<ModelInferResponse>(&arena);
  rest->set_model_name(model_->name);
  rest->set_model_version(kModelVersion);
  rest->set_id(header_->id());
  auto& parameters = *rest->mutable_parameters();
  parameters["implementation"].set_string_param(request->implementation());
  parameters["variant"].set_string_param(request->row().implementation.name);
  parameters["device"].set_string_param(request->device());
  parameters["kernel_ns"].set_int64_param(request->trace().kernel_ns);
  if (request->resident_bytes() > 0)
    parameters["resident_bytes"].set_int64_param(request->resident_bytes());
  if (in_stream_) parameters["triton_final_response"].set_bool_param(true);
  ModelInferResponse::InferOutputTensor* const output = rest->add_outputs();
  output->set_name(OutputName(*request->kernel().op));
  output->set_datatype(WireTypeName(spec.data_type));
  for (const int64_t dim : spec.dims) output->add_shape(dim);
  const size_t raw_bytes = output_.memory != nullptr ? 0 : spec.bytes();
  std::string header;
  header.reserve(kHeaderBytesUsual);
  rest->AppendToString(&header);
  wire::AppendRawOutputPrefix(raw_bytes, &header);
  absl::InlinedVector<grpc::Slice, 2> slices{grpc::Slice(header)};
  if (raw_bytes > 0) slices.push_back(SliceOver(std::move(outputs[0])));
  grpc::ByteBuffer encoded(slices.data(), slices.size());
  response->Swap(&encoded);
  return absl::OkStatus();
}

void InferCodec::RecordEnd(const RequestTrace& trace, const absl::Status& status) {
  if (model_ != nullptr) door_->statistics.Record(model_index_, trace, status.ok());
}

}  // namespace warpcall::oip
