#include "client/cpp/codec/inspect_codec.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/wire_format_lite.h>

#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cpp/codec/values.h"
#include "proto/common/status_macros.h"
#include "warpcall/v1/warpcall.pb.h"

namespace warpcall::client {
namespace {

using google::protobuf::internal::WireFormatLite;

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
  std::vector<Piece> pieces = EncodeCall(call.call, borrowed_owner);
  uint64_t call_bytes = 0;
  for (const Piece& piece : pieces) call_bytes += piece.bytes.size();
  // All but `request`; then its tag and length, and the call as it is.
  v1::ProfileRequest request;
  request.set_iterations(call.iterations);
  request.set_trace(call.trace);
  for (const TensorSpec& spec : call.input_specs) AddSpec(spec, request.mutable_input_specs());
  request.set_seed(call.seed);
  request.set_request_path(call.request_path);
  std::string head = request.SerializeAsString();
  {
    google::protobuf::io::StringOutputStream stream(&head);
    google::protobuf::io::CodedOutputStream out(&stream);
    out.WriteTag(WireFormatLite::MakeTag(v1::ProfileRequest::kRequestFieldNumber,
                                         WireFormatLite::WIRETYPE_LENGTH_DELIMITED));
    out.WriteVarint64(call_bytes);
  }
  pieces.insert(pieces.begin(), OwnedPiece(std::move(head)));
  return pieces;
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
