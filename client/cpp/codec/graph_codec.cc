#include "client/cpp/codec/graph_codec.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "client/cpp/codec/output_buffers.h"
#include "client/cpp/codec/values.h"
#include "proto/common/status_macros.h"
#include "proto/wire/tensor_split.h"
#include "warpcall/v1/warpcall.pb.h"

namespace warpcall::client {
namespace {

void ToProto(const GraphStep& step, v1::GraphStep* out) {
  out->set_name(step.name);
  out->set_kernel(step.kernel);
  out->set_implementation(step.implementation);
  for (const std::string& input : step.inputs) out->add_inputs(input);
  client::ToProto(step.attributes, out->mutable_attributes());
}

void ToProto(const GraphOutput& output, v1::GraphOutput* out) {
  out->set_name(output.name);
  out->set_keep(output.keep);
  out->set_ttl_ns(absl::ToInt64Nanoseconds(output.ttl));
  out->set_label(output.label);
}

// Everything but the inputs.
v1::ExecuteGraphRequest ToProto(const GraphRequest& request) {
  v1::ExecuteGraphRequest message;
  for (const GraphStep& step : request.steps) ToProto(step, message.add_steps());
  for (const GraphOutput& output : request.outputs) ToProto(output, message.add_outputs());
  message.set_device(request.device);
  message.set_request_id(request.request_id);
  message.set_step_times(request.step_times);
  return message;
}

GraphStepResult FromProto(const v1::GraphStepResult& step) {
  return {.name = step.name(),
          .implementation = step.implementation(),
          .kernel_ns = step.kernel_ns(),
          .launch = client::FromProto(step.launch())};
}

// Copies the outputs' data; those that stay on the device have none.
absl::StatusOr<std::vector<Tensor>> DecodeOutputs(const v1::ExecuteGraphResponse& response,
                                                  const wire::SplitMessage& split) {
  std::vector<TensorSpec> sent;
  for (int i = 0; i < response.outputs_size(); ++i) {
    if (!response.outputs(i).handle().empty()) continue;
    const size_t data_bytes = split.tensor_data[static_cast<size_t>(i)].size;
    ASSIGN_OR_RETURN(TensorSpec spec, DecodeSpec(response.outputs(i), data_bytes));
    sent.push_back(std::move(spec));
  }
  ASSIGN_OR_RETURN(OutputBuffers buffers, OutputBuffers::Allocate(std::move(sent)));
  size_t next = 0;
  for (int i = 0; i < response.outputs_size(); ++i)
    if (response.outputs(i).handle().empty())
      split.tensor_data[static_cast<size_t>(i)].CopyTo(buffers.data(next++));
  std::vector<Tensor> copied = buffers.Release();

  std::vector<Tensor> outputs;
  next = 0;
  for (const v1::Tensor& output : response.outputs()) {
    if (output.handle().empty()) {
      outputs.push_back(std::move(copied[next++]));
      continue;
    }
    ASSIGN_OR_RETURN(TensorSpec spec, DecodeSpec(output));
    outputs.push_back(Tensor::FromHandle(output.handle(), std::move(spec)));
  }
  return outputs;
}

}  // namespace

std::vector<Piece> EncodeGraph(const GraphRequest& request,
                               const std::shared_ptr<const void>& borrowed_owner) {
  // Fields may come in any order, so what is small goes first and the tensors follow.
  std::string small = ToProto(request).SerializeAsString();
  std::vector<Piece> pieces;
  for (const GraphInput& input : request.inputs) {
    if (input.tensor.is_resident()) {
      v1::ExecuteGraphRequest more;  // messages one behind the other are one with all their inputs
      v1::GraphInput* added = more.add_inputs();
      added->set_name(input.name);
      added->mutable_tensor()->set_handle(input.tensor.handle());
      more.AppendToString(&small);
      continue;
    }
    const Tensor& tensor = input.tensor;
    wire::AppendGraphInputPrefix(
        input.name, {static_cast<int>(tensor.data_type()), tensor.shape(), tensor.data().size()},
        &small);
    pieces.push_back(OwnedPiece(std::exchange(small, {})));
    const std::shared_ptr<const void>& owner = tensor.owner();
    pieces.push_back({tensor.data(), owner == nullptr ? borrowed_owner : owner});
  }
  if (!small.empty()) pieces.push_back(OwnedPiece(std::move(small)));
  return pieces;
}

v1::ExecuteGraphRequest GraphWithoutData(const GraphRequest& request) {
  v1::ExecuteGraphRequest message = ToProto(request);
  for (const GraphInput& input : request.inputs) {
    v1::GraphInput* added = message.add_inputs();
    added->set_name(input.name);
    v1::Tensor* tensor = added->mutable_tensor();
    if (input.tensor.is_resident()) {
      tensor->set_handle(input.tensor.handle());
      continue;
    }
    tensor->set_data_type(static_cast<v1::DataType>(input.tensor.data_type()));
    for (const int64_t dimension : input.tensor.shape()) tensor->add_shape(dimension);
  }
  return message;
}

absl::StatusOr<GraphResponse> DecodeGraph(Fragments message, size_t outputs) {
  wire::SplitMessage split;
  if (const absl::Status status = wire::SplitGraphResponse(message, &split); !status.ok())
    return BadResponse(status.message());
  v1::ExecuteGraphResponse header;
  if (!header.ParseFromString(split.header)) return BadResponse("not an ExecuteGraphResponse");
  if (static_cast<size_t>(header.outputs_size()) != outputs || split.tensor_data.size() != outputs)
    return BadResponse(absl::StrCat(header.outputs_size(), " outputs, of which ",
                                    split.tensor_data.size(), " have data; the request has ",
                                    outputs));
  GraphResponse response;
  ASSIGN_OR_RETURN(response.outputs, DecodeOutputs(header, split));
  for (const v1::GraphStepResult& step : header.steps()) response.steps.push_back(FromProto(step));
  response.device = header.device();
  response.timing = client::FromProto(header.timing());
  response.request_id = header.request_id();
  response.resident_bytes = header.resident_bytes();
  response.intermediate_bytes = header.intermediate_bytes();
  response.replayed = header.replayed();
  return response;
}

}  // namespace warpcall::client
