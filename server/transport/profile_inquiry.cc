#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/common/saturate.h"
#include "proto/common/status_macros.h"
#include "server/inspect/profile.h"
#include "server/transport/codec.h"
#include "server/transport/inquiry.h"

namespace warpcall {
namespace {

constexpr int kIterationsDefault = 3;
constexpr int kIterationsMax = 1000;

using google::protobuf::internal::WireFormatLite;

// A profile's request, taken apart: tensors stay where they are.
struct CheckedProfile {
  int iterations = 0;
  bool trace = false;
  bool makes_inputs = false;  // those of input_specs
  uint64_t seed = 0;
  bool request_path = true;
  DecodedRequest decoded;  // of the ExecuteRequest, within the bytes that were read
  const Kernel* kernel = nullptr;
  Problem problem;
};

absl::Status NotValid() {
  return absl::InvalidArgumentError(
      "the message is not a valid ProfileRequest: protobuf cannot parse it");
}

// Finds the ExecuteRequest, which may come in several pieces that merge, and copies the rest.
absl::Status Split(absl::string_view bytes, std::vector<wire::Bytes>* request, std::string* rest) {
  const uint32_t request_tag = WireFormatLite::MakeTag(v1::ProfileRequest::kRequestFieldNumber,
                                                       WireFormatLite::WIRETYPE_LENGTH_DELIMITED);
  google::protobuf::io::CodedInputStream in(reinterpret_cast<const uint8_t*>(bytes.data()),
                                            static_cast<int>(bytes.size()));
  for (;;) {
    const auto begin = static_cast<size_t>(in.CurrentPosition());
    const uint32_t tag = in.ReadTag();
    if (tag == 0) return in.ConsumedEntireMessage() ? absl::OkStatus() : NotValid();
    if (tag == request_tag) {
      uint32_t length = 0;
      if (!in.ReadVarint32(&length)) return NotValid();
      const auto at = static_cast<size_t>(in.CurrentPosition());
      if (length > bytes.size() - at || !in.Skip(static_cast<int>(length))) return NotValid();
      request->emplace_back(bytes.data() + at, length);
      continue;
    }
    if (!WireFormatLite::SkipField(&in, tag)) return NotValid();
    rest->append(bytes.data() + begin, static_cast<size_t>(in.CurrentPosition()) - begin);
    if (rest->size() > wire::kHeaderBytesMax)
      return absl::InvalidArgumentError(absl::StrCat(
          "the ProfileRequest has more than ", wire::kHeaderBytesMax, " bytes beside its request"));
  }
}

// `bytes` stay as they are as long as `checked` does.
absl::Status Read(const Registry& registry, absl::string_view bytes, CheckedProfile* checked) {
  std::vector<wire::Bytes> inner;
  std::string rest;
  RETURN_IF_ERROR(Split(bytes, &inner, &rest));
  v1::ProfileRequest request;
  if (!request.ParseFromString(rest)) return NotValid();
  if (request.iterations() < 0 || request.iterations() > kIterationsMax)
    return absl::InvalidArgumentError(absl::StrCat("iterations is ", request.iterations(),
                                                   "; it must be 0 (the default) to ",
                                                   kIterationsMax));
  checked->iterations = request.iterations() > 0 ? request.iterations() : kIterationsDefault;
  checked->trace = request.trace();
  RETURN_IF_ERROR(checked->decoded.Decode(inner));
  const v1::ExecuteRequest& header = checked->decoded.header();
  RETURN_IF_ERROR(CheckRequestId(header.request_id()));
  ASSIGN_OR_RETURN(checked->kernel, registry.Find(header.kernel()));
  RETURN_IF_ERROR(registry.CheckImplementationName(*checked->kernel, header.implementation()));
  checked->makes_inputs = request.input_specs_size() > 0;
  checked->seed = request.seed();
  checked->request_path = !checked->makes_inputs || request.request_path();
  const Op& op = *checked->kernel->op;
  if (!checked->makes_inputs) {
    ASSIGN_OR_RETURN(checked->problem, ToProblem(header, op));
    return checked->decoded.CheckDataBytes(op, checked->problem);
  }
  if (header.inputs_size() > 0)
    return absl::InvalidArgumentError(
        absl::StrCat("there are ", header.inputs_size(), " request.inputs and ",
                     request.input_specs_size(), " input_specs; one of the two must be empty"));
  ASSIGN_OR_RETURN(checked->problem, ToProblem(request.input_specs(), header.attributes(), op));
  return absl::OkStatus();
}

int64_t TotalBytes(absl::Span<const TensorSpec> specs) {
  int64_t bytes = 0;
  for (const TensorSpec& spec : specs)
    bytes = SaturatingAdd(bytes, static_cast<int64_t>(spec.bytes()));
  return bytes;
}

// A request is one that could be sent.
absl::Status CheckRequestBytes(const ExecuteDeps& deps, const Problem& problem) {
  RETURN_IF_ERROR(CheckMessageBytes(deps, kInputsData, TotalBytes(problem.inputs)));
  return CheckMessageBytes(deps, absl::StrCat("the output ", ToString(problem.outputs[0])),
                           TotalBytes(problem.outputs));
}

}  // namespace

absl::StatusOr<inspect::Inquiry> ToProfileInquiry(const ExecuteDeps& deps, const MayUse& may_use,
                                                  std::string bytes, const std::string& id) {
  CheckedProfile checked;
  RETURN_IF_ERROR(Read(*deps.registry, bytes, &checked));
  if (checked.request_path) RETURN_IF_ERROR(CheckRequestBytes(deps, checked.problem));
  const v1::ExecuteRequest& header = checked.decoded.header();
  const Chooser chooser(&deps.engine->choices(), {.kernel = checked.kernel,
                                                  .implementation = header.implementation(),
                                                  .device = header.device(),
                                                  .may_use = may_use});
  ASSIGN_OR_RETURN(const Candidate choice, chooser.Next(absl::MakeConstSpan(&checked.problem, 1)));
  const Device& device = deps.engine->device(choice.device);
  if (checked.makes_inputs) {
    const int64_t operand_bytes = inspect::ProfileBytes(checked.problem, checked.request_path);
    RETURN_IF_ERROR(CheckOperandBytes(deps, "profiling", operand_bytes, device));
  }
  inspect::Inquiry inquiry;
  inquiry.kind = Inspection::kProfile;
  inquiry.kernel = checked.kernel->id;
  inquiry.inputs = InputsOf(checked.problem);
  inquiry.device = device.properties().name;
  inquiry.device_index = choice.device;
  inquiry.row = choice.row->id;
  inquiry.request_id = header.request_id();
  inquiry.request = std::move(bytes);  // which `checked` points to: not used from here on
  if (inquiry.request_id.empty()) inquiry.request_id = id;
  // What follows in a message is merged with what came before.
  v1::ProfileRequest chosen;
  chosen.mutable_request()->set_request_id(inquiry.request_id);
  chosen.mutable_request()->set_implementation(choice.row->implementation.name);
  chosen.AppendToString(&inquiry.request);
  return inquiry;
}

double AchievedOccupancy(const std::string& response) {
  v1::ProfileResponse parsed;
  double weighted = 0;
  double weight = 0;
  if (parsed.ParseFromString(response)) {
    for (const v1::ProfileRow& row : parsed.rows()) {
      if (row.kind() != inspect::kKernelRow || row.achieved_occupancy() < 0) continue;
      weighted += static_cast<double>(row.total_ns()) * row.achieved_occupancy();
      weight += static_cast<double>(row.total_ns());
    }
  }
  return weight > 0 ? weighted / weight : -1;
}

absl::StatusOr<std::string> AnswerProfile(const Registry& registry, std::unique_ptr<Device> device,
                                          const std::string& bytes, absl::string_view traceparent) {
  CheckedProfile checked;
  RETURN_IF_ERROR(Read(registry, bytes, &checked));
  const v1::ExecuteRequest& header = checked.decoded.header();
  inspect::ProfilePlan plan;
  plan.kernel = checked.kernel;
  ASSIGN_OR_RETURN(plan.row, registry.Select(*checked.kernel, header.implementation(),
                                             checked.problem, device->properties()));
  plan.problem = checked.problem;
  for (size_t i = 0; i < checked.decoded.input_count(); ++i)
    plan.inputs.push_back(checked.decoded.data(i).pieces);
  plan.seed = checked.seed;
  plan.request_path = checked.request_path;
  plan.iterations = checked.iterations;
  plan.trace = checked.trace;
  plan.request_id = header.request_id();
  plan.traceparent = std::string(traceparent);
  ASSIGN_OR_RETURN(const v1::ProfileResponse response,
                   inspect::RunProfile(registry, std::move(device), plan));
  return response.SerializeAsString();
}

}  // namespace warpcall
