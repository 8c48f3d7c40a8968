#include "client/cpp/codec/codec.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>

#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cpp/codec/output_buffers.h"
#include "client/cpp/codec/values.h"
#include "proto/common/status_macros.h"
#include "proto/wire/tensor_split.h"
#include "warpcall/v1/warpcall.pb.h"

namespace warpcall::client {
namespace {

using google::protobuf::internal::WireFormatLite;

// Kernels have one output today; more than this many is no kernel's answer.
constexpr int kOutputsMax = 64;

constexpr int kHealthServiceField = 1;
constexpr int kHealthStatusField = 1;

// An ExecuteResponse taken apart.
struct SplitResponse {
  v1::ExecuteResponse header;
  wire::SplitMessage split;
};

absl::Status Split(Fragments message, SplitResponse* response) {
  const absl::Status status =
      wire::SplitTensors(message, wire::kExecuteResponseOutputs, &response->split);
  if (!status.ok()) return BadResponse(status.message());
  if (!response->header.ParseFromString(response->split.header))
    return BadResponse("not an ExecuteResponse");
  if (static_cast<size_t>(response->header.outputs_size()) != response->split.tensor_data.size())
    return BadResponse(absl::StrCat(response->header.outputs_size(), " outputs with ",
                                    response->split.tensor_data.size(), " data fields"));
  return absl::OkStatus();
}

// Splits the message that describes the outputs, which is an Execute's answer or a stream's header.
// INTERNAL when it has a number of outputs that no kernel has.
absl::Status SplitOutputs(Fragments message, SplitResponse* response) {
  RETURN_IF_ERROR(Split(message, response));
  const int outputs = response->header.outputs_size();
  if (outputs >= 1 && outputs <= kOutputsMax) return absl::OkStatus();
  return BadResponse(absl::StrCat(outputs, " outputs; a kernel has 1 to ", kOutputsMax));
}

Independence FromProto(v1::Independence independence) {
  switch (independence) {
    case v1::INDEPENDENCE_ELEMENTS:
      return Independence::kElements;
    case v1::INDEPENDENCE_BEFORE_AXIS:
      return Independence::kBeforeAxis;
    case v1::INDEPENDENCE_ROWS:
      return Independence::kRows;
    case v1::INDEPENDENCE_BROADCAST_ROWS:
      return Independence::kBroadcastRows;
    case v1::INDEPENDENCE_PRODUCT_ROWS:
      return Independence::kProductRows;
    default:
      return Independence::kNone;  // kinds that this client does not know are one piece to it
  }
}

KernelInfo FromProto(const v1::KernelInfo& kernel) {
  KernelInfo info;
  info.independence = FromProto(kernel.independence());
  for (const int role : kernel.input_roles()) {
    if (role != v1::OPERAND_ROLE_SPLIT && role != v1::OPERAND_ROLE_SHARED)
      info.independence = Independence::kNone;  // a later version's role
    info.input_roles.push_back(role == v1::OPERAND_ROLE_SHARED ? OperandRole::kShared
                                                               : OperandRole::kSplit);
  }
  info.name = kernel.name();
  info.summary = kernel.summary();
  info.input_names.assign(kernel.input_names().begin(), kernel.input_names().end());
  info.inputs_min = kernel.inputs_min();
  for (const v1::AttributeInfo& attribute : kernel.attributes()) {
    info.attributes.push_back(
        {.name = attribute.name(),
         .summary = attribute.summary(),
         .default_value = client::FromProto(attribute.default_value()),
         .allowed_values = {attribute.allowed_values().begin(), attribute.allowed_values().end()},
         .required = attribute.required()});
  }
  for (const v1::ImplementationInfo& implementation : kernel.implementations()) {
    ImplementationInfo row;
    row.name = implementation.name();
    row.family = implementation.family();
    row.device_kind = implementation.device_kind();
    row.summary = implementation.summary();
    row.unavailable = implementation.unavailable();
    row.variants.assign(implementation.variants().begin(), implementation.variants().end());
    for (const int type : implementation.data_types())  // but for those that this client lacks
      if (type >= v1::DATA_TYPE_FLOAT32 && type <= v1::DATA_TYPE_BFLOAT16)
        row.data_types.push_back(static_cast<DataType>(type));
    info.implementations.push_back(std::move(row));
  }
  return info;
}

Result ToResult(const v1::ExecuteResponse& response) {
  Result result;
  result.implementation = response.implementation();
  result.device = response.device();
  result.timing = client::FromProto(response.timing());
  result.launch = client::FromProto(response.launch());
  result.request_id = response.request_id();
  result.resident_bytes = response.resident_bytes();
  return result;
}

// Outputs that stay on the device; empty if they came with the answer.
absl::StatusOr<std::vector<Tensor>> KeptOutputs(const v1::ExecuteResponse& response) {
  std::vector<Tensor> kept;
  for (const v1::Tensor& output : response.outputs()) {
    if (output.handle().empty()) continue;
    ASSIGN_OR_RETURN(TensorSpec spec, DecodeSpec(output));
    kept.push_back(Tensor::FromHandle(output.handle(), std::move(spec)));
  }
  if (!kept.empty() && kept.size() != static_cast<size_t>(response.outputs_size()))
    return BadResponse(
        absl::StrCat(kept.size(), " of ", response.outputs_size(), " outputs have handles"));
  return kept;
}

// Everything of a Call or StreamCall but its tensors.
template <typename AnyCall>
void SetNames(const AnyCall& call, v1::ExecuteRequest* request) {
  request->set_kernel(call.kernel);
  request->set_implementation(call.options.implementation);
  request->set_device(call.options.device);
  request->set_request_id(call.options.request_id);
  request->set_keep_outputs(call.options.keep_outputs);
  request->set_keep_ttl_ns(absl::ToInt64Nanoseconds(call.options.keep_ttl));
  ToProto(call.attributes, request->mutable_attributes());
}

DeviceInfo FromProto(const v1::DeviceInfo& device) {
  return {.name = device.name(),
          .kind = device.kind(),
          .description = device.description(),
          .memory_bytes = device.memory_bytes(),
          .multiprocessors = device.multiprocessors(),
          .l2_bytes = device.l2_bytes(),
          .shared_memory_per_block_bytes = device.shared_memory_per_block_bytes(),
          .compute_capability = device.compute_capability(),
          .healthy = device.healthy(),
          .measured_bandwidth_bytes_per_second = device.measured_bandwidth_bytes_per_second()};
}

}  // namespace

absl::Status BadResponse(absl::string_view what) {
  return absl::InternalError(absl::StrCat("malformed response from the server: ", what));
}

absl::StatusOr<TensorSpec> DecodeSpec(const v1::Tensor& tensor) {
  const auto wire_type = tensor.data_type();
  if (wire_type < v1::DATA_TYPE_FLOAT32 || wire_type > v1::DATA_TYPE_BFLOAT16)
    return BadResponse(absl::StrCat("unknown data type ", static_cast<int>(wire_type)));
  TensorSpec spec{static_cast<DataType>(wire_type), {tensor.shape().begin(), tensor.shape().end()}};
  const absl::StatusOr<int64_t> count = ByteCount(spec.data_type, spec.shape);
  if (!count.ok()) return BadResponse(count.status().message());
  return spec;
}

absl::StatusOr<TensorSpec> DecodeSpec(const v1::Tensor& tensor, size_t data_bytes) {
  ASSIGN_OR_RETURN(TensorSpec spec, DecodeSpec(tensor));
  ASSIGN_OR_RETURN(const int64_t bytes, ByteCount(spec.data_type, spec.shape));
  if (static_cast<size_t>(bytes) == data_bytes) return spec;
  return BadResponse(absl::StrCat("a ", DataTypeName(spec.data_type), " tensor of shape (",
                                  absl::StrJoin(spec.shape, ", "), ") has ", data_bytes,
                                  " bytes instead of ", bytes));
}

std::vector<Piece> EncodeCall(const Call& call, const std::shared_ptr<const void>& borrowed_owner) {
  v1::ExecuteRequest request;
  SetNames(call, &request);
  // Fields may come in any order, so what names the kernel goes first and its inputs follow.
  std::string small = request.SerializeAsString();
  std::vector<Piece> pieces;
  for (const Tensor& input : call.inputs) {
    if (input.is_resident()) {
      v1::ExecuteRequest more;  // messages one behind the other are one with all their inputs
      more.add_inputs()->set_handle(input.handle());
      more.AppendToString(&small);
      continue;
    }
    wire::AppendTensorPrefix(
        wire::kExecuteRequestInputs,
        {static_cast<int>(input.data_type()), input.shape(), input.data().size()}, &small);
    pieces.push_back(OwnedPiece(std::exchange(small, {})));
    pieces.push_back({input.data(), input.owner() == nullptr ? borrowed_owner : input.owner()});
  }
  if (!small.empty()) pieces.push_back(OwnedPiece(std::move(small)));
  return pieces;
}

absl::StatusOr<Result> DecodeResultInto(Fragments message, PlaceOutputs place) {
  SplitResponse response;
  RETURN_IF_ERROR(SplitOutputs(message, &response));
  Result result = ToResult(response.header);
  ASSIGN_OR_RETURN(result.outputs, KeptOutputs(response.header));
  if (!result.outputs.empty()) return result;
  std::vector<TensorSpec> specs;
  for (int i = 0; i < response.header.outputs_size(); ++i) {
    const size_t data_bytes = response.split.tensor_data[static_cast<size_t>(i)].size;
    ASSIGN_OR_RETURN(TensorSpec spec, DecodeSpec(response.header.outputs(i), data_bytes));
    specs.push_back(std::move(spec));
  }
  ASSIGN_OR_RETURN(const std::vector<char*> places, place(specs));
  for (size_t i = 0; i < places.size(); ++i) response.split.tensor_data[i].CopyTo(places[i]);
  return result;
}

absl::StatusOr<Result> DecodeResult(Fragments message, absl::Span<const Destination> destinations) {
  OutputBuffers outputs;
  const auto allocate =
      [&](const std::vector<TensorSpec>& specs) -> absl::StatusOr<std::vector<char*>> {
    ASSIGN_OR_RETURN(outputs, OutputBuffers::Allocate(specs, destinations));
    std::vector<char*> places;
    for (size_t i = 0; i < specs.size(); ++i) places.push_back(outputs.data(i));
    return places;
  };
  ASSIGN_OR_RETURN(Result result, DecodeResultInto(message, allocate));
  if (result.outputs.empty()) result.outputs = outputs.Release();
  return result;
}

std::string EncodeStreamHeader(const StreamCall& call) {
  v1::ExecuteStreamRequest message;
  v1::ExecuteRequest* request = message.mutable_header();
  SetNames(call, request);
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    v1::Tensor* input = request->add_inputs();
    if (i < call.handles.size() && !call.handles[i].empty()) {
      input->set_handle(call.handles[i]);
      continue;
    }
    input->set_data_type(static_cast<v1::DataType>(call.inputs[i].data_type));
    for (const int64_t dimension : call.inputs[i].shape) input->add_shape(dimension);
  }
  return message.SerializeAsString();
}

absl::StatusOr<std::vector<TensorSpec>> DecodeStreamHeader(Fragments header) {
  SplitResponse response;
  RETURN_IF_ERROR(SplitOutputs(header, &response));
  std::vector<TensorSpec> specs;
  for (const v1::Tensor& output : response.header.outputs()) {
    ASSIGN_OR_RETURN(TensorSpec spec, DecodeSpec(output));
    specs.push_back(std::move(spec));
  }
  return specs;
}

absl::StatusOr<Result> DecodeStreamEnd(Fragments done) {
  SplitResponse response;
  RETURN_IF_ERROR(Split(done, &response));
  Result result = ToResult(response.header);
  ASSIGN_OR_RETURN(result.outputs, KeptOutputs(response.header));
  return result;
}

absl::StatusOr<std::vector<KernelInfo>> DecodeKernels(Fragments message) {
  v1::ListKernelsResponse response;
  if (!response.ParseFromString(Join(message))) return BadResponse("not a ListKernelsResponse");
  std::vector<KernelInfo> kernels;
  for (const v1::KernelInfo& kernel : response.kernels()) kernels.push_back(FromProto(kernel));
  return kernels;
}

absl::StatusOr<std::vector<DeviceInfo>> DecodeDevices(Fragments message) {
  v1::ListDevicesResponse response;
  if (!response.ParseFromString(Join(message))) return BadResponse("not a ListDevicesResponse");
  std::vector<DeviceInfo> devices;
  for (const v1::DeviceInfo& device : response.devices()) devices.push_back(FromProto(device));
  return devices;
}

absl::StatusOr<ServerDescription> DecodeServerInfo(Fragments message) {
  v1::ServerInfoResponse response;
  if (!response.ParseFromString(Join(message))) return BadResponse("not a ServerInfoResponse");
  return ServerDescription{
      .version = response.version(),
      .revision = response.revision(),
      .grpc_version = response.grpc_version(),
      .started = absl::FromUnixNanos(response.started_unix_ns()),
      .changed_flags = {response.changed_flags().begin(), response.changed_flags().end()},
      .hostname = response.hostname()};
}

// HealthCheckRequest is { string service = 1 }.
std::string EncodeHealthRequest(absl::string_view service) {
  std::string encoded;
  google::protobuf::io::StringOutputStream stream(&encoded);
  google::protobuf::io::CodedOutputStream out(&stream);
  WireFormatLite::WriteString(kHealthServiceField, std::string(service), &out);
  out.Trim();
  return encoded;
}

// HealthCheckResponse is { ServingStatus status = 1 }.
absl::StatusOr<ServingStatus> DecodeHealthResponse(Fragments message) {
  const std::string encoded = Join(message);
  google::protobuf::io::CodedInputStream in(reinterpret_cast<const uint8_t*>(encoded.data()),
                                            static_cast<int>(encoded.size()));
  constexpr uint32_t kStatusTag =
      WireFormatLite::MakeTag(kHealthStatusField, WireFormatLite::WIRETYPE_VARINT);
  auto status = ServingStatus::kUnknown;
  while (const uint32_t tag = in.ReadTag()) {
    uint64_t value = 0;
    if (tag != kStatusTag) {
      if (!WireFormatLite::SkipField(&in, tag)) return BadResponse("not a HealthCheckResponse");
      continue;
    }
    if (!in.ReadVarint64(&value)) return BadResponse("not a HealthCheckResponse");
    const auto number = static_cast<int32_t>(value);  // as protobuf reads an enum
    const bool known =
        number >= 0 && number <= static_cast<int32_t>(ServingStatus::kServiceUnknown);
    status = known ? static_cast<ServingStatus>(number) : ServingStatus::kUnknown;
  }
  if (!in.ConsumedEntireMessage()) return BadResponse("not a HealthCheckResponse");
  return status;
}

}  // namespace warpcall::client
