#include "server/transport/codec.h"

#include <memory>
#include <string>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "proto/common/check.h"
#include "proto/common/status_macros.h"
#include "server/inspect/describe.h"
#include "server/transport/request.h"

namespace warpcall {
namespace {

// The header of a response with one output of a few dimensions.
constexpr size_t kHeaderBytesUsual = 256;
// The outputs' field in either response.
constexpr int kOutputs = wire::kExecuteResponseOutputs;
static_assert(kOutputs == wire::kExecuteGraphResponseOutputs);

std::string InputLabel(size_t number) { return absl::StrCat("input ", number); }

absl::StatusOr<DataType> ToDataType(v1::DataType type, absl::FunctionRef<std::string()> label) {
  switch (type) {
    case v1::DATA_TYPE_FLOAT32:
    case v1::DATA_TYPE_FLOAT16:
    case v1::DATA_TYPE_BFLOAT16:
      return static_cast<DataType>(type);
    default:
      return absl::InvalidArgumentError(
          absl::StrCat(label(), ": data type ", static_cast<int>(type),
                       " is unknown; known: 1 (float32), 2 (float16), 3 (bfloat16)"));
  }
}

absl::StatusOr<AttributeValue> ToAttributeValue(const std::string& name,
                                                const v1::Attribute& attribute) {
  switch (attribute.value_case()) {
    case v1::Attribute::kBoolValue:
      return AttributeValue(attribute.bool_value());
    case v1::Attribute::kIntValue:
      return AttributeValue(int64_t{attribute.int_value()});
    case v1::Attribute::kDoubleValue:
      return AttributeValue(attribute.double_value());
    case v1::Attribute::kStringValue:
      return AttributeValue(attribute.string_value());
    case v1::Attribute::VALUE_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "attribute \"", name,
      "\" has no value; set one of bool_value, int_value, double_value, string_value"));
}

TensorSpec SpecOf(const v1::Tensor& tensor) {
  TensorSpec spec;
  spec.data_type = static_cast<DataType>(tensor.data_type());
  spec.dims.assign(tensor.shape().begin(), tensor.shape().end());
  return spec;
}

// `inputs`: of Tensor or TensorSpec.
template <typename Inputs>
absl::StatusOr<Problem> ProblemOf(
    const Inputs& inputs, const google::protobuf::Map<std::string, v1::Attribute>& attributes,
    const Op& op) {
  absl::InlinedVector<TensorSpec, 2> specs;
  for (const auto& input : inputs) {
    TensorSpec& spec = specs.emplace_back();
    ASSIGN_OR_RETURN(spec.data_type,
                     ToDataType(input.data_type(), [&] { return InputLabel(specs.size() - 1); }));
    spec.dims.assign(input.shape().begin(), input.shape().end());
  }
  return ToProblem(specs, attributes, op);
}

}  // namespace

absl::StatusOr<Problem> ToProblem(
    absl::Span<const TensorSpec> inputs,
    const google::protobuf::Map<std::string, v1::Attribute>& attributes, const Op& op) {
  absl::InlinedVector<NamedAttribute, 3> named_attributes;
  for (const auto& [name, attribute] : attributes) {
    NamedAttribute& named = named_attributes.emplace_back();
    named.name = name;
    ASSIGN_OR_RETURN(named.value, ToAttributeValue(name, attribute));
  }
  return MakeProblem(op, inputs, named_attributes);
}

absl::Status ExecuteCodec::Decode(const grpc::ByteBuffer& message) {
  RETURN_IF_ERROR(DumpSlices(message, &slices_));
  absl::InlinedVector<wire::Bytes, 8> fragments;
  for (const grpc::Slice& slice : slices_) fragments.push_back(BytesOf(slice));
  return Decode(fragments);
}

absl::Status ExecuteCodec::Decode(absl::Span<const wire::Bytes> fragments) {
  RETURN_IF_ERROR(wire::SplitTensors(fragments, wire::kExecuteRequestInputs, &split_));
  if (!header_->ParseFromString(split_.header))
    return absl::InvalidArgumentError(
        "the message is not a valid ExecuteRequest: protobuf cannot parse its fields");
  return absl::OkStatus();
}

void ExecuteCodec::ReleaseInputs() {
  slices_.Clear();
  split_.tensor_data.clear();
}

absl::Status ExecuteCodec::FindResidents(Residents* residents, absl::string_view owner) {
  absl::InlinedVector<NamedInput, 4> inputs;
  for (const v1::Tensor& input : header_->inputs()) {
    const size_t i = inputs.size();
    inputs.push_back({InputLabel(i), &input, i < input_count() ? data(i).size : 0});
  }
  ASSIGN_OR_RETURN(residents_, UseHandles({residents, owner}, inputs));
  for (size_t i = 0; i < residents_.size(); ++i)
    RETURN_IF_ERROR(
        CompleteSpec(inputs[i].label, residents_[i], header_->mutable_inputs(static_cast<int>(i))));
  return absl::OkStatus();
}

absl::StatusOr<std::vector<ResidentUse>> UseHandles(const HandleOwner& owner,
                                                    absl::Span<const NamedInput> inputs) {
  absl::InlinedVector<absl::string_view, 4> handles;
  for (const NamedInput& input : inputs) {
    if (!input.tensor->handle().empty() && input.data_bytes > 0)
      return absl::InvalidArgumentError(
          absl::StrCat(input.label, " has both a handle and ", input.data_bytes, " bytes of data"));
    handles.push_back(input.tensor->handle());
  }
  return owner.residents->Use(owner.name, handles);
}

absl::Status CompleteSpec(absl::string_view label, const ResidentUse& use, v1::Tensor* input) {
  const ResidentContentPtr content = use.content();
  if (content == nullptr) return absl::OkStatus();
  const v1::DataType type = input->data_type();
  if (type != v1::DATA_TYPE_UNSPECIFIED)
    RETURN_IF_ERROR(ToDataType(type, [&] { return std::string(label); }).status());
  if (type != v1::DATA_TYPE_UNSPECIFIED || !input->shape().empty())
    RETURN_IF_ERROR(CheckStated(label, SpecOf(*input), *content));
  input->set_data_type(static_cast<v1::DataType>(content->spec().data_type));
  input->mutable_shape()->Assign(content->spec().dims.begin(), content->spec().dims.end());
  return absl::OkStatus();
}

absl::Status CheckDataBytes(absl::string_view label, size_t bytes, const TensorSpec& spec) {
  if (bytes == spec.bytes()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(label, ": ", bytes, " bytes of data, but ",
                                                 ToString(spec), " takes ", spec.bytes()));
}

absl::Status CheckStated(absl::string_view label, const TensorSpec& stated,
                         const ResidentContent& content) {
  if (stated == content.spec()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(label, " is ", ToString(stated),
                                                 ", but the tensor of its handle is ",
                                                 ToString(content.spec())));
}

absl::StatusOr<CallSpec> ExecuteCodec::Spec() {
  return CallSpec{.kernel = header_->kernel(),
                  .implementation = header_->implementation(),
                  .device = header_->device(),
                  .request_id = header_->request_id(),
                  .residents = std::move(residents_),
                  .keep_outputs = header_->keep_outputs(),
                  .keep_terms = {.ttl_ns = header_->keep_ttl_ns()}};
}

absl::StatusOr<TensorSpec> ToTensorSpec(const v1::Tensor& tensor, absl::string_view label) {
  RETURN_IF_ERROR(ToDataType(tensor.data_type(), [&] { return std::string(label); }).status());
  TensorSpec spec = SpecOf(tensor);
  RETURN_IF_ERROR(CheckTensorSpec(spec, label));
  return spec;
}

absl::StatusOr<Problem> ExecuteCodec::ToProblem(const Op& op) {
  return ProblemOf(header_->inputs(), header_->attributes(), op);
}

absl::StatusOr<Problem> ToProblem(
    const google::protobuf::RepeatedPtrField<v1::TensorSpec>& inputs,
    const google::protobuf::Map<std::string, v1::Attribute>& attributes, const Op& op) {
  return ProblemOf(inputs, attributes, op);
}

absl::StatusOr<JobInputs> ExecuteCodec::Inputs(const Op& op, const Problem& problem) {
  JobInputs inputs;
  WARPCALL_CHECK(problem.inputs.size() == input_count(), op.name, problem.inputs.size(),
                 input_count());
  for (size_t i = 0; i < input_count(); ++i) {
    const TensorSpec& spec = problem.inputs[i];
    inputs.push_back(data(i).pieces);
    if (!header_->inputs(static_cast<int>(i)).handle().empty()) continue;
    if (data(i).size != spec.bytes())
      return CheckDataBytes(absl::StrCat("input ", i, " (", op.input_names[i], ")"), data(i).size,
                            spec);
  }
  return inputs;
}

absl::Status ExecuteCodec::Encode(Request* request, StagingBuffers outputs,
                                  grpc::ByteBuffer* response) {
  alignas(8) char block[1024];  // room for the response without its outputs
  google::protobuf::Arena arena(block, sizeof(block));
  auto* rest = google::protobuf::Arena::CreateMessage<v1::ExecuteResponse>(&arena);
  RETURN_IF_ERROR(request->NameOutputs());
  Describe(request, rest);
  EncodeResponse(*request, *rest, std::move(outputs), response);
  return absl::OkStatus();
}

grpc::Slice SliceOver(StagingBuffer buffer) {
  WARPCALL_DCHECK(buffer.data() != nullptr && buffer.bytes() > 0, buffer.bytes());
  auto* owner = new StagingBuffer(std::move(buffer));
  return grpc::Slice(
      owner->data(), owner->bytes(), [](void* p) { delete static_cast<StagingBuffer*>(p); }, owner);
}

void DescribeChoice(const Request& request, v1::ExecuteResponse* response) {
  response->set_implementation(request.implementation());
  response->set_device(request.device());
  response->set_request_id(request.request_id());
}

void FillIn(const RequestTrace& trace, v1::Timing* timing) {
  timing->set_queue_ns(trace.queue_ns);
  timing->set_copy_in_ns(trace.copy_in_ns);
  timing->set_h2d_ns(trace.h2d_ns);
  timing->set_kernel_ns(trace.kernel_ns);
  timing->set_d2h_ns(trace.d2h_ns);
  timing->set_total_ns(trace.total_ns);
}

void Describe(Request* request, v1::ExecuteResponse* response) {
  request->StopClock();
  DescribeChoice(*request, response);
  response->set_resident_bytes(request->resident_bytes());
  const RequestTrace& trace = request->trace();
  FillIn(trace, response->mutable_timing());
  *response->mutable_launch() =
      inspect::LaunchInfoOf(request->row().implementation, trace.work, trace.launch);
}

void AddKept(const Request& request, v1::ExecuteResponse* response) {
  for (size_t i = 0; i < request.kept().size(); ++i) {
    const TensorSpec& spec = request.problem().outputs[i];
    v1::Tensor* const tensor = response->add_outputs();
    tensor->set_data_type(static_cast<v1::DataType>(spec.data_type));
    tensor->mutable_shape()->Assign(spec.dims.begin(), spec.dims.end());
    tensor->set_handle(request.kept()[i].handle);
  }
}

void EncodeResponse(const Request& request, const google::protobuf::MessageLite& rest,
                    StagingBuffers outputs, grpc::ByteBuffer* message) {
  const Problem& problem = request.problem();
  WARPCALL_CHECK(outputs.size() == problem.outputs.size(), outputs.size(), problem.outputs.size());
  std::string header;
  header.reserve(kHeaderBytesUsual);
  rest.AppendToString(&header);
  absl::InlinedVector<grpc::Slice, 4> slices;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const TensorSpec& spec = problem.outputs[i];
    wire::TensorPrefix prefix = {static_cast<int>(spec.data_type), spec.dims, spec.bytes()};
    if (i < request.kept().size()) prefix.handle = request.kept()[i].handle;
    const bool is_kept = !prefix.handle.empty();
    if (is_kept) prefix.data_bytes = 0;
    wire::AppendTensorPrefix(kOutputs, prefix, &header);
    if (is_kept) continue;
    slices.emplace_back(header);
    header.clear();
    WARPCALL_CHECK(outputs[i].bytes() == spec.bytes(), i, outputs[i].bytes(), spec.bytes());
    if (spec.bytes() > 0) slices.push_back(SliceOver(std::move(outputs[i])));
  }
  if (!header.empty()) slices.emplace_back(header);
  grpc::ByteBuffer encoded(slices.data(), slices.size());
  message->Swap(&encoded);
}

}  // namespace warpcall
