#include "server/worker/protocol.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <variant>

#include "absl/strings/str_cat.h"
#include "kernels/common/status_macros.h"

namespace warpcall::worker {
namespace {

template <size_t kSize>
void SetText(char (&to)[kSize], absl::string_view text) {
  const size_t bytes = std::min(text.size(), kSize - 1);
  std::copy_n(text.begin(), bytes, to);
  to[bytes] = '\0';
}

absl::Status TooLarge(absl::string_view what, size_t value, size_t limit) {
  return absl::InternalError(
      absl::StrCat("a worker takes ", limit, " ", what, " at most, got ", value));
}

absl::Status AddAttribute(const AttributeValue& value, WireAttribute* wire) {
  wire->kind = static_cast<int32_t>(value.index());
  if (const bool* as_bool = std::get_if<bool>(&value)) wire->as_bool = *as_bool;
  if (const int64_t* as_int = std::get_if<int64_t>(&value)) wire->as_int = *as_int;
  if (const double* as_double = std::get_if<double>(&value)) wire->as_double = *as_double;
  if (const std::string* text = std::get_if<std::string>(&value)) {
    if (text->size() >= kTextBytes)
      return TooLarge("bytes of an attribute", text->size(), kTextBytes - 1);
    SetText(wire->as_text, *text);
  }
  return absl::OkStatus();
}

AttributeValue AttributeOf(const WireAttribute& wire) {
  switch (wire.kind) {
    case 0:
      return wire.as_bool;
    case 1:
      return wire.as_int;
    case 2:
      return wire.as_double;
    default:
      return std::string(wire.as_text);
  }
}

}  // namespace

WireStatus ToWire(const absl::Status& status) {
  WireStatus wire = {};
  wire.code = static_cast<int32_t>(status.code());
  SetText(wire.message, status.message());
  return wire;
}

absl::Status FromWire(const WireStatus& status) {
  return absl::Status(static_cast<absl::StatusCode>(status.code), status.message);
}

Hello ToWire(const DeviceProperties& properties) {
  Hello hello = {};
  SetText(hello.name, properties.name);
  SetText(hello.description, properties.description);
  SetText(hello.compute_capability, properties.compute_capability);
  SetText(hello.pci_bus_id, properties.pci_bus_id);
  hello.memory_bytes = properties.memory_bytes;
  hello.l2_bytes = properties.l2_bytes;
  hello.shared_memory_per_block_bytes = properties.shared_memory_per_block_bytes;
  hello.multiprocessors = properties.multiprocessors;
  hello.threads_per_multiprocessor = properties.threads_per_multiprocessor;
  hello.architecture = properties.architecture;
  hello.ordinal = properties.ordinal;
  hello.kind = static_cast<int32_t>(properties.kind);
  return hello;
}

DeviceProperties FromWire(const Hello& hello) {
  DeviceProperties properties;
  properties.name = hello.name;
  properties.kind = static_cast<DeviceKind>(hello.kind);
  properties.description = hello.description;
  properties.compute_capability = hello.compute_capability;
  properties.pci_bus_id = hello.pci_bus_id;
  properties.memory_bytes = hello.memory_bytes;
  properties.l2_bytes = hello.l2_bytes;
  properties.shared_memory_per_block_bytes = hello.shared_memory_per_block_bytes;
  properties.multiprocessors = hello.multiprocessors;
  properties.threads_per_multiprocessor = hello.threads_per_multiprocessor;
  properties.architecture = hello.architecture;
  properties.ordinal = hello.ordinal;
  return properties;
}

absl::StatusOr<RunRequest> ToWire(const Job& job) {
  RunRequest request = {};
  const Problem& problem = job.problem;
  if (std::max(problem.inputs.size(), problem.outputs.size()) > kTensorsMax)
    return TooLarge("inputs or outputs", problem.inputs.size(), kTensorsMax);
  if (problem.attributes.size() > kAttributesMax)
    return TooLarge("attributes", problem.attributes.size(), kAttributesMax);
  request.row = job.row->id;
  request.input_count = static_cast<int32_t>(problem.inputs.size());
  request.attribute_count = static_cast<int32_t>(problem.attributes.size());
  request.operand_count = static_cast<int32_t>(problem.inputs.size() + problem.outputs.size());
  for (size_t i = 0; i < problem.inputs.size(); ++i) {
    const TensorSpec& spec = problem.inputs[i];
    WireTensor& wire = request.inputs[i];
    wire.data_type = static_cast<int32_t>(spec.data_type);
    wire.rank = static_cast<int32_t>(spec.dims.size());
    std::copy(spec.dims.begin(), spec.dims.end(), wire.dims);
  }
  for (size_t i = 0; i < problem.attributes.size(); ++i)
    RETURN_IF_ERROR(AddAttribute(problem.attributes[i], &request.attributes[i]));
  return request;
}

absl::StatusOr<Problem> ProblemOf(const RunRequest& request, const Op& op) {
  Problem problem;
  for (int i = 0; i < request.input_count; ++i) {
    const WireTensor& wire = request.inputs[i];
    problem.inputs.push_back(
        {static_cast<DataType>(wire.data_type), Dims(wire.dims, wire.dims + wire.rank)});
  }
  for (int i = 0; i < request.attribute_count; ++i)
    problem.attributes.push_back(AttributeOf(request.attributes[i]));
  RETURN_IF_ERROR(op.infer_outputs(&problem));
  return problem;
}

absl::Status SendBytes(int socket, const void* data, size_t bytes) {
  ssize_t sent;
  do {
    sent = send(socket, data, bytes, MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  if (sent == static_cast<ssize_t>(bytes)) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("the worker process is gone: ", strerror(errno)));
}

absl::Status ReceiveBytes(int socket, void* data, size_t bytes) {
  ssize_t received;
  do {
    received = recv(socket, data, bytes, 0);
  } while (received < 0 && errno == EINTR);
  if (received == static_cast<ssize_t>(bytes)) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(
      "the worker process is gone: ", received == 0 ? "it closed its socket" : strerror(errno)));
}

}  // namespace warpcall::worker
