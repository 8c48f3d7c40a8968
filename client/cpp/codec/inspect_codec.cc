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

BenchmarkResult FromProto(const v1::BenchmarkResult& result) {
  return {.implementation = result.implementation(),
          .family = result.family(),
          .mean_ns = result.mean_ns(),
          .median_ns = result.median_ns(),
          .min_ns = result.min_ns(),
          .p90_ns = result.p90_ns(),
          .bytes_per_second = result.bytes_per_second(),
          .flops_per_second = result.flops_per_second(),
          .fraction_of_ceiling = result.fraction_of_ceiling(),
          .relative_error = result.relative_error(),
          .launch = client::FromProto(result.launch()),
          .error = result.error(),
          .iterations = result.iterations(),
          .launches_per_iteration = result.launches_per_iteration(),
          .checked_elements = result.checked_elements(),
          .p10_ns = result.p10_ns(),
          .median_low_ns = result.median_low_ns(),
          .median_high_ns = result.median_high_ns(),
          .verdict = result.verdict(),
          .max_error = result.max_error(),
          .noise = result.noise(),
          .unstable = result.unstable(),
          .predicted_ns = result.predicted_ns()};
}

RunStamp FromProto(const v1::RunStamp& stamp) {
  return {.device_description = stamp.device_description(),
          .driver = stamp.driver(),
          .cuda = stamp.cuda(),
          .server_version = stamp.server_version(),
          .seed = stamp.seed(),
          .sm_clock_mhz_min = stamp.sm_clock_mhz_min(),
          .sm_clock_mhz_max = stamp.sm_clock_mhz_max(),
          .memory_clock_mhz = stamp.memory_clock_mhz(),
          .temperature_celsius = stamp.temperature_celsius(),
          .power_watts = stamp.power_watts(),
          .throttle_reasons = {stamp.throttle_reasons().begin(), stamp.throttle_reasons().end()},
          .samples_dropped = stamp.samples_dropped(),
          .started_unix_ns = stamp.started_unix_ns()};
}

ProfileRow FromProto(const v1::ProfileRow& row) {
  return {.name = row.name(),
          .kind = row.kind(),
          .calls = row.calls(),
          .total_ns = row.total_ns(),
          .mean_ns = row.mean_ns(),
          .fraction = row.fraction(),
          .registers_per_thread = row.registers_per_thread(),
          .shared_memory_bytes = row.shared_memory_bytes(),
          .grid = row.grid(),
          .block = row.block(),
          .achieved_occupancy = row.achieved_occupancy(),
          .sm_throughput = row.sm_throughput(),
          .dram_throughput = row.dram_throughput(),
          .bytes = row.bytes()};
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

absl::Status CheckResultCount(size_t results) {
  constexpr size_t kResultsMax = 1000;
  if (results <= kResultsMax) return absl::OkStatus();
  return BadResponse(absl::StrCat("more than ", kResultsMax, " results of one benchmark"));
}

absl::StatusOr<BenchmarkReport> DecodeBenchmark(Fragments message) {
  ASSIGN_OR_RETURN(BenchmarkPart whole, DecodeBenchmarkPart(message));
  RETURN_IF_ERROR(CheckResultCount(whole.news.results.size()));
  return std::move(whole.news);
}

absl::StatusOr<BenchmarkPart> DecodeBenchmarkPart(Fragments message) {
  v1::BenchmarkResponse response;
  if (!response.ParseFromString(Join(message))) return BadResponse("not a BenchmarkResponse");
  BenchmarkPart part;
  BenchmarkReport& report = part.news;
  for (const v1::BenchmarkResult& result : response.results())
    report.results.push_back(FromProto(result));
  report.device = response.device();
  report.ceiling_bytes_per_second = response.ceiling_bytes_per_second();
  report.flops_ceiling = response.flops_ceiling();
  report.stamp = FromProto(response.stamp());
  part.verdicts.insert(response.verdicts().begin(), response.verdicts().end());
  return part;
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
  v1::ProfileResponse response;
  if (!response.ParseFromString(Join(message))) return BadResponse("not a ProfileResponse");
  ProfileReport report;
  for (const v1::ProfileRow& row : response.rows()) report.rows.push_back(FromProto(row));
  report.trace_json = std::move(*response.mutable_trace_json());
  report.implementation = response.implementation();
  report.device = response.device();
  report.iterations = response.iterations();
  report.counters_unavailable = response.counters_unavailable();
  report.inconclusive = response.inconclusive();
  return report;
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
  v1::DescribeResponse response;
  if (!response.ParseFromString(Join(message))) return BadResponse("not a DescribeResponse");
  Description description{.implementation = response.implementation(),
                          .family = response.family(),
                          .device = response.device(),
                          .launch = FromProto(response.launch()),
                          .registers_per_thread = response.registers_per_thread(),
                          .shared_memory_bytes = response.shared_memory_bytes(),
                          .local_memory_bytes = response.local_memory_bytes(),
                          .workspace_bytes = response.workspace_bytes(),
                          .files = {},
                          .tolerance = response.tolerance(),
                          .chosen_because = response.chosen_because(),
                          .grid = response.grid(),
                          .block = response.block()};
  for (v1::SourceFile& file : *response.mutable_files())
    description.files.push_back({std::move(*file.mutable_name()),
                                 std::move(*file.mutable_language()),
                                 std::move(*file.mutable_text())});
  return description;
}

}  // namespace warpcall::client
