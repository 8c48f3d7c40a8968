#include "client/cpp/codec/inspect_codec.h"

#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cpp/codec/graph_codec.h"
#include "client/cpp/codec/values.h"
#include "proto/common/status_macros.h"
#include "proto/wire/tensor_split.h"
#include "warpcall/v1/warpcall.pb.h"

namespace warpcall::client {
namespace {

template <typename Message>
absl::StatusOr<Message> Decode(Fragments message) {
  Message response;
  if (response.ParseFromString(Join(message))) return response;
  return BadResponse(absl::StrCat("not a ", response.GetDescriptor()->name()));
}

void AddSpec(const TensorSpec& spec, google::protobuf::RepeatedPtrField<v1::TensorSpec>* specs) {
  v1::TensorSpec* added = specs->Add();
  added->set_data_type(static_cast<v1::DataType>(spec.data_type));
  for (const int64_t dimension : spec.shape) added->add_shape(dimension);
}

// `request`, and behind it the message of `pieces` as its field.
std::vector<Piece> WithField(const v1::ProfileRequest& request, int field,
                             std::vector<Piece> pieces) {
  size_t bytes = 0;
  for (const Piece& piece : pieces) bytes += piece.bytes.size();
  std::string head = request.SerializeAsString();
  wire::AppendMessage(field, {}, bytes, &head);
  pieces.insert(pieces.begin(), OwnedPiece(std::move(head)));
  return pieces;
}

GraphRequest KeepingNothing(GraphRequest graph) {
  for (GraphOutput& output : graph.outputs) output = {.name = std::move(output.name)};
  return graph;
}

}  // namespace

std::string EncodeBenchmark(const BenchmarkCall& call) {
  v1::BenchmarkRequest request;
  request.set_kernel(call.kernel);
  for (const std::string& name : call.implementations) request.add_implementations(name);
  for (const TensorSpec& spec : call.inputs) AddSpec(spec, request.mutable_inputs());
  ToProto(call.attributes, request.mutable_attributes());
  request.set_device(call.device);
  request.set_warmup_iterations(call.warmup_iterations);
  request.set_iterations(call.iterations);
  request.set_seed(call.seed);
  request.set_max_noise(call.max_noise);
  request.set_timeout_ns(absl::ToInt64Nanoseconds(call.row_timeout));
  request.set_method(call.method);
  return request.SerializeAsString();
}

absl::Status CheckResultCount(int results) {
  constexpr int kResultsMax = 1000;
  if (results <= kResultsMax) return absl::OkStatus();
  return BadResponse(absl::StrCat("more than ", kResultsMax, " results of one benchmark"));
}

absl::StatusOr<BenchmarkReport> DecodeBenchmark(Fragments message) {
  ASSIGN_OR_RETURN(BenchmarkReport report, Decode<BenchmarkReport>(message));
  RETURN_IF_ERROR(CheckResultCount(report.results_size()));
  return report;
}

std::vector<Piece> EncodeProfile(const ProfileCall& call,
                                 const std::shared_ptr<const void>& borrowed_owner) {
  v1::ProfileRequest request;
  request.set_iterations(call.iterations);
  request.set_trace(call.trace);
  for (const TensorSpec& spec : call.input_specs) AddSpec(spec, request.mutable_input_specs());
  request.set_seed(call.seed);
  request.set_request_path(call.request_path);
  return WithField(request, v1::ProfileRequest::kRequestFieldNumber,
                   EncodeCall(call.call, borrowed_owner));
}

std::vector<Piece> EncodeProfileGraph(const ProfileGraphCall& call,
                                      const std::shared_ptr<const void>& borrowed_owner) {
  v1::ProfileRequest request;
  request.set_iterations(call.iterations);
  request.set_trace(call.trace);
  return WithField(request, v1::ProfileRequest::kGraphFieldNumber,
                   EncodeGraph(KeepingNothing(call.graph), borrowed_owner));
}

absl::StatusOr<ProfileReport> DecodeProfile(Fragments message) {
  return Decode<ProfileReport>(message);
}

std::string EncodeDescribe(const DescribeCall& call) {
  v1::DescribeRequest request;
  request.set_kernel(call.kernel);
  request.set_implementation(call.implementation);
  for (const TensorSpec& spec : call.inputs) AddSpec(spec, request.mutable_inputs());
  ToProto(call.attributes, request.mutable_attributes());
  request.set_device(call.device);
  return request.SerializeAsString();
}

std::string EncodeDescribeGraph(const GraphRequest& graph) {
  v1::DescribeRequest request;
  *request.mutable_graph() = GraphWithoutData(KeepingNothing(graph));
  return request.SerializeAsString();
}

absl::StatusOr<Description> DecodeDescribe(Fragments message) {
  return Decode<Description>(message);
}

std::string EncodePush(const PushCall& call) {
  v1::PushRequest request;
  request.set_manifest_json(call.manifest_json);
  request.set_code(call.code);
  for (const PushProblem& problem : call.problems) {
    v1::PushProblem* added = request.add_problems();
    for (const TensorSpec& spec : problem.inputs) AddSpec(spec, added->mutable_inputs());
    ToProto(problem.attributes, added->mutable_attributes());
  }
  request.set_seed(call.seed);
  request.set_iterations(call.iterations);
  for (const std::string& name : call.compare_with) request.add_compare_with(name);
  request.set_check_only(call.check_only);
  request.set_device(call.device);
  request.set_fresh(call.fresh);
  request.set_with_files(call.with_files);
  request.set_timeout_ns(absl::ToInt64Nanoseconds(call.judge_timeout));
  return request.SerializeAsString();
}

absl::StatusOr<PushEvent> DecodePushEvent(Fragments message) {
  ASSIGN_OR_RETURN(PushEvent event, Decode<PushEvent>(message));
  RETURN_IF_ERROR(CheckResultCount(event.timed().results_size()));
  return event;
}

}  // namespace warpcall::client
