// The first byte chooses the response that the client waits for, the second the fragments of a
// message. The client must read the message as protobuf does.
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/stubs/logging.h>
#include <google/protobuf/unknown_field_set.h>

#include <algorithm>
#include <iterator>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/cpp/codec/codec.h"
#include "client/cpp/codec/graph_codec.h"
#include "client/cpp/codec/inspect_codec.h"
#include "tests/fuzz/client_stream_check.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/targets.h"
#include "tests/proto/fragments.h"
#include "warpcall/v1/warpcall.pb.h"

namespace warpcall::testing {
namespace {

// Why a client need not take these outputs; nothing when it must.
std::string WhyNotOutputs(const v1::ExecuteResponse& response, bool with_data) {
  if (response.outputs_size() < 1 || response.outputs_size() > 64) return "a number of outputs";
  for (const v1::Tensor& output : response.outputs()) {
    if (output.data_type() < 1 || output.data_type() > kDataTypeCount) return "a data type";
    const std::vector<int64_t> shape(output.shape().begin(), output.shape().end());
    const auto bytes = client::ByteCount(static_cast<DataType>(output.data_type()), shape);
    if (!bytes.ok()) return "a shape";
    if (with_data && static_cast<size_t>(*bytes) != output.data().size()) return "a length";
  }
  return "";
}

// Outputs that stay on the device have handles, for which the client looks.
std::string WhyNotKept(const v1::ExecuteResponse& response) {
  int kept = 0;
  for (const v1::Tensor& output : response.outputs()) {
    if (output.handle().empty()) continue;
    ++kept;
    v1::ExecuteResponse one;
    *one.add_outputs() = output;
    if (std::string flaw = WhyNotOutputs(one, false); !flaw.empty()) return flaw;
  }
  return kept == 0 || kept == response.outputs_size() ? "" : "a number of handles";
}

bool HasHandles(const v1::ExecuteResponse& response) {
  return std::any_of(response.outputs().begin(), response.outputs().end(),
                     [](const v1::Tensor& output) { return !output.handle().empty(); });
}

// Checks that `status` is the client's answer to a message with these flaws.
std::string CheckRefusal(const absl::Status& status, bool readable, const std::string& flaw) {
  if (absl::StrContains(status.message(), "exceeds")) return "";  // our limit, not protobuf's
  if (status.ok() != (readable && flaw.empty()))
    return absl::StrCat("protobuf ", readable ? "reads" : "refuses", " it",
                        flaw.empty() ? "" : absl::StrCat(", and ", flaw, " is wrong"),
                        "; the client: ", status.ToString());
  return status.ok() || absl::IsInternal(status) ? "" : status.ToString();
}

// Returns true if the client reads the output as protobuf does; one that stays has no data.
bool IsSame(const client::Tensor& output, const v1::Tensor& expected, bool stays) {
  return static_cast<int>(output.data_type()) == expected.data_type() &&
         std::equal(output.shape().begin(), output.shape().end(), expected.shape().begin(),
                    expected.shape().end()) &&
         output.handle() == expected.handle() &&
         absl::string_view(output.data().data(), output.data().size()) ==
             (stays ? absl::string_view() : absl::string_view(expected.data()));
}

std::string CheckResult(absl::string_view message, client::Fragments fragments) {
  v1::ExecuteResponse response;
  const bool readable = response.ParseFromString(std::string(message));
  const absl::StatusOr<client::Result> result = client::DecodeResult(fragments);
  const bool stays = HasHandles(response);
  std::string flaw;
  if (readable) flaw = stays ? WhyNotKept(response) : WhyNotOutputs(response, true);
  if (readable && response.outputs_size() > 64) flaw = "a number of outputs";
  std::string wrong = CheckRefusal(result.status(), readable, flaw);
  if (!wrong.empty() || !result.ok()) return wrong;
  if (static_cast<int>(result->outputs.size()) != response.outputs_size())
    return absl::StrCat(result->outputs.size(), " outputs");
  for (int i = 0; i < response.outputs_size(); ++i) {
    if (!IsSame(result->outputs[static_cast<size_t>(i)], response.outputs(i), stays))
      return absl::StrCat("output ", i, " differs");
  }
  const bool same = result->implementation == response.implementation() &&
                    result->device == response.device() &&
                    result->request_id == response.request_id() &&
                    result->timing.total_ns == response.timing().total_ns() &&
                    result->launch.gpu_kernels == response.launch().gpu_kernels();
  return same ? "" : "fields beside the outputs differ";
}

std::string CheckGraph(absl::string_view message, client::Fragments fragments) {
  v1::ExecuteGraphResponse response;
  const bool readable = response.ParseFromString(std::string(message));
  std::string flaw;
  for (const v1::Tensor& output : response.outputs()) {
    v1::ExecuteResponse one;
    *one.add_outputs() = output;
    if (readable && flaw.empty()) flaw = WhyNotOutputs(one, output.handle().empty());
  }
  const auto count = static_cast<size_t>(response.outputs_size());
  if (client::DecodeGraph(fragments, count + 1).ok()) return "a number of outputs is not checked";
  const auto result = client::DecodeGraph(fragments, count);
  std::string wrong = CheckRefusal(result.status(), readable, flaw);
  if (!wrong.empty() || !result.ok()) return wrong;
  for (size_t i = 0; i < count; ++i) {
    const v1::Tensor& expected = response.outputs(static_cast<int>(i));
    if (!IsSame(result->outputs[i], expected, !expected.handle().empty()))
      return absl::StrCat("output ", i, " differs");
  }
  if (static_cast<int>(result->steps.size()) != response.steps_size())
    return absl::StrCat(result->steps.size(), " steps");
  for (size_t i = 0; i < result->steps.size(); ++i) {
    const client::GraphStepResult& step = result->steps[i];
    const v1::GraphStepResult& expected = response.steps(static_cast<int>(i));
    if (step.name != expected.name() || step.implementation != expected.implementation() ||
        step.kernel_ns != expected.kernel_ns() || step.launch.flops != expected.launch().flops())
      return absl::StrCat("step ", i, " differs");
  }
  const bool same = result->device == response.device() &&
                    result->request_id == response.request_id() &&
                    result->timing.total_ns == response.timing().total_ns() &&
                    result->resident_bytes == response.resident_bytes() &&
                    result->intermediate_bytes == response.intermediate_bytes() &&
                    result->replayed == response.replayed();
  return same ? "" : "fields beside outputs and steps differ";
}

std::string CheckStreamEnds(absl::string_view message, client::Fragments fragments) {
  v1::ExecuteResponse response;
  const bool readable = response.ParseFromString(std::string(message));
  const auto header = client::DecodeStreamHeader(fragments);
  const auto end = client::DecodeStreamEnd(fragments);
  std::string wrong = CheckRefusal(end.status(), readable, readable ? WhyNotKept(response) : "");
  if (!wrong.empty()) return wrong;
  return CheckRefusal(header.status(), readable, readable ? WhyNotOutputs(response, false) : "");
}

template <typename Response, typename Decode>
std::string CheckList(absl::string_view message, client::Fragments fragments, Decode decode) {
  Response response;
  const bool readable = response.ParseFromString(std::string(message));
  return CheckRefusal(decode(fragments).status(), readable, "");
}

// A type that only a later server has must not become one of ours, or none.
std::string CheckKernels(absl::string_view message, client::Fragments fragments) {
  v1::ListKernelsResponse response;
  const bool readable = response.ParseFromString(std::string(message));
  const auto kernels = client::DecodeKernels(fragments);
  std::string wrong = CheckRefusal(kernels.status(), readable, "");
  if (!wrong.empty() || !kernels.ok()) return wrong;
  for (size_t k = 0; k < kernels->size(); ++k) {
    const v1::KernelInfo& kernel = response.kernels(static_cast<int>(k));
    for (size_t i = 0; i < (*kernels)[k].implementations.size(); ++i) {
      std::vector<DataType> expected;
      for (const int type : kernel.implementations(static_cast<int>(i)).data_types())
        if (type >= 1 && type <= kDataTypeCount) expected.push_back(static_cast<DataType>(type));
      if ((*kernels)[k].implementations[i].data_types != expected)
        return absl::StrCat("data types of kernel ", k, ", implementation ", i);
    }
  }
  return "";
}

// Its bytes, with maps in the order of their keys.
std::string Sorted(const google::protobuf::Message& message) {
  std::string bytes;
  google::protobuf::io::StringOutputStream stream(&bytes);
  google::protobuf::io::CodedOutputStream out(&stream);
  out.SetSerializationDeterministic(true);
  message.SerializeToCodedStream(&out);
  out.Trim();
  return bytes;
}

std::string CheckPushEvent(absl::string_view message, client::Fragments fragments) {
  constexpr int kResultsMax = 1000;
  v1::PushEvent event;
  const bool readable = event.ParseFromString(std::string(message));
  const auto decoded = client::DecodePushEvent(fragments);
  const bool many = event.timed().results_size() > kResultsMax;
  std::string wrong = CheckRefusal(decoded.status(), readable, many ? "a number of results" : "");
  if (!wrong.empty() || !decoded.ok()) return wrong;
  return Sorted(*decoded) == Sorted(event) ? "" : "another event";
}

// grpc.health.v1.HealthCheckResponse, for which there is no generated C++.
std::string CheckHealth(absl::string_view message, client::Fragments fragments) {
  google::protobuf::UnknownFieldSet fields;
  const bool readable = fields.ParseFromString(std::string(message));
  const auto status = client::DecodeHealthResponse(fragments);
  std::string wrong = CheckRefusal(status.status(), readable, "");
  if (!wrong.empty() || !status.ok()) return wrong;
  int expected = 0;
  for (int i = 0; i < fields.field_count(); ++i)
    if (fields.field(i).number() == 1 &&
        fields.field(i).type() == google::protobuf::UnknownField::TYPE_VARINT)
      expected = static_cast<int32_t>(fields.field(i).varint());
  if (expected < 0 || expected > static_cast<int>(client::ServingStatus::kServiceUnknown))
    expected = 0;
  return static_cast<int>(*status) == expected
             ? ""
             : absl::StrCat("status ", static_cast<int>(*status), " instead of ", expected);
}

}  // namespace

std::string FuzzClientResponse(absl::string_view input) {
  const google::protobuf::LogSilencer silencer;  // it reports every string that is not UTF-8
  FuzzInput decisions(input);
  const uint8_t kind = decisions.Byte() % 10;
  if (kind == 7) return CheckClientStream(&decisions);
  const uint8_t seed = decisions.Byte();
  const absl::string_view message = decisions.Rest();
  const Fragments fragments(message, seed);
  switch (kind) {
    case 0:
      return CheckResult(message, fragments.spans());
    case 1:
      return CheckStreamEnds(message, fragments.spans());
    case 2:
      return CheckKernels(message, fragments.spans());
    case 3:
      return CheckList<v1::ListDevicesResponse>(message, fragments.spans(), client::DecodeDevices);
    case 4:
      return CheckList<v1::BenchmarkResponse>(message, fragments.spans(), client::DecodeBenchmark);
    case 5:
      return CheckList<v1::ProfileResponse>(message, fragments.spans(), client::DecodeProfile);
    case 8:
      return CheckPushEvent(message, fragments.spans());
    case 9:
      return CheckGraph(message, fragments.spans());
    default:
      return CheckHealth(message, fragments.spans());
  }
}

}  // namespace warpcall::testing
