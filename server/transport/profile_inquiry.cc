#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "kernels/common/saturate.h"
#include "proto/common/inspect_limits.h"
#include "proto/common/status_macros.h"
#include "server/inspect/profile.h"
#include "server/transport/codec.h"
#include "server/transport/inquiry.h"

namespace warpcall {
namespace {

constexpr int kIterationsDefault = 3;

using google::protobuf::internal::WireFormatLite;
constexpr uint32_t kRequestTag = WireFormatLite::MakeTag(v1::ProfileRequest::kRequestFieldNumber,
                                                         WireFormatLite::WIRETYPE_LENGTH_DELIMITED);

// A profile's request, taken apart: tensors stay where they are.
struct CheckedProfile {
  v1::ProfileRequest message;  // but for its request
  bool makes_inputs = false;   // those of input_specs
  bool request_path = true;
  ExecuteCodec decoded;  // the ExecuteRequest; refers to the bytes that were read
};

absl::Status NotValid() {
  return absl::InvalidArgumentError(
      "the message is not a valid ProfileRequest: protobuf cannot parse it");
}

// Finds the ExecuteRequest, which may come in several pieces that merge, and copies the rest.
absl::Status Split(absl::string_view bytes, std::vector<wire::Bytes>* request, std::string* rest) {
  google::protobuf::io::CodedInputStream in(reinterpret_cast<const uint8_t*>(bytes.data()),
                                            static_cast<int>(bytes.size()));
  for (;;) {
    const auto begin = static_cast<size_t>(in.CurrentPosition());
    const uint32_t tag = in.ReadTag();
    if (tag == 0) return in.ConsumedEntireMessage() ? absl::OkStatus() : NotValid();
    if (tag == kRequestTag) {
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

// Decodes the request without checking names, types and shapes. `bytes` must stay unchanged as long
// as `checked` lives.
absl::Status Decode(absl::string_view bytes, CheckedProfile* checked) {
  std::vector<wire::Bytes> inner;
  std::string rest;
  RETURN_IF_ERROR(Split(bytes, &inner, &rest));
  v1::ProfileRequest& message = checked->message;
  if (!message.ParseFromString(rest)) return NotValid();
  RETURN_IF_ERROR(CheckCount("iterations", message.iterations(), kProfileIterationsMax));
  RETURN_IF_ERROR(checked->decoded.Decode(inner));
  if (checked->decoded.header().keep_outputs())
    return absl::InvalidArgumentError("keep_outputs is true; Profile keeps no outputs");
  checked->makes_inputs = message.input_specs_size() > 0;
  checked->request_path = !checked->makes_inputs || message.request_path();
  return absl::OkStatus();
}

absl::StatusOr<Problem> ProblemOf(CheckedProfile& checked, const Op& op) {
  const v1::ExecuteRequest& header = checked.decoded.header();
  if (!checked.makes_inputs) {
    ASSIGN_OR_RETURN(Problem problem, checked.decoded.ToProblem(op));
    RETURN_IF_ERROR(checked.decoded.Inputs(op, problem).status());
    return problem;
  }
  if (header.inputs_size() > 0)
    return absl::InvalidArgumentError(absl::StrCat(
        "there are ", header.inputs_size(), " request.inputs and ",
        checked.message.input_specs_size(), " input_specs; one of the two must be empty"));
  return ToProblem(checked.message.input_specs(), header.attributes(), op);
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

// Appends the beginning of a piece of the ExecuteRequest, which `more` bytes complete.
void AppendPiece(absl::string_view begin, size_t more, std::string* bytes) {
  using google::protobuf::io::CodedOutputStream;
  uint8_t prefix[20];
  uint8_t* end = CodedOutputStream::WriteTagToArray(kRequestTag, prefix);
  end = CodedOutputStream::WriteVarint64ToArray(begin.size() + more, end);
  bytes->append(prefix, end);
  bytes->append(begin.data(), begin.size());
}

// Copies a tensor from its device, as Get does.
absl::Status AppendResident(const HandlesOfProfile& profile, const ResidentUse& resident,
                            std::string* bytes) {
  if (resident.content()->bytes() == 0) return absl::OkStatus();
  const TensorSpec& spec = resident.content()->spec();
  CallSpec get;
  get.kernel = kCopyKernel;
  get.residents = {resident};
  Request copy(profile.deps, profile.context, profile.request.caller(), Request::Kind::kTransfer);
  RETURN_IF_ERROR(copy.ReadKernel(std::move(get)));
  ASSIGN_OR_RETURN(Problem problem,
                   MakeProblem(*copy.kernel().op, absl::MakeConstSpan(&spec, 1), {}));
  copy.SetProblem(std::move(problem));
  RETURN_IF_ERROR(copy.Choose(absl::MakeConstSpan(&copy.problem(), 1)));
  std::unique_ptr<Job> job = copy.NewJob(copy.problem());
  job->key = profile.request.key();
  job->inputs.emplace_back();
  job->cancelled = &profile.cancelled;
  job->trace = &copy.trace();
  job->release_inputs = [] {};
  absl::Status result;
  StagingBuffers copied;
  absl::Notification done;
  job->done = [&](absl::Status status, StagingBuffers outputs) {
    result = std::move(status);
    copied = std::move(outputs);
    done.Notify();
  };
  RETURN_IF_ERROR(profile.deps->engine->Submit(&job));
  done.WaitForNotification();
  RETURN_IF_ERROR(result);
  bytes->append(copied[0].data(), copied[0].bytes());
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<int64_t> ReadProfile(const ExecuteDeps& deps, const std::string& bytes,
                                    Request* request) {
  CheckedProfile checked;
  RETURN_IF_ERROR(Decode(bytes, &checked));
  RETURN_IF_ERROR(
      checked.decoded.FindResidents(&deps.engine->residents(), request->caller()->name));
  CallSpec spec;
  ASSIGN_OR_RETURN(spec, checked.decoded.Spec());
  RETURN_IF_ERROR(request->ReadKernel(std::move(spec)));
  ASSIGN_OR_RETURN(Problem stated, ProblemOf(checked, *request->kernel().op));
  request->SetProblem(std::move(stated));
  const Problem& problem = request->problem();
  if (checked.request_path) RETURN_IF_ERROR(CheckRequestBytes(deps, problem));
  RETURN_IF_ERROR(request->Choose(absl::MakeConstSpan(&problem, 1)));
  return checked.makes_inputs ? inspect::ProfileBytes(problem, checked.request_path) : 0;
}

absl::Status FetchResidents(const HandlesOfProfile& profile, std::string* bytes) {
  CheckedProfile checked;
  RETURN_IF_ERROR(Decode(*bytes, &checked));
  std::string fetched = checked.message.SerializeAsString();
  v1::ExecuteRequest* const header = checked.decoded.mutable_header();
  header->clear_inputs();
  AppendPiece(header->SerializeAsString(), 0, &fetched);
  for (size_t i = 0; i < checked.decoded.input_count(); ++i) {
    const TensorSpec& spec = profile.request.problem().inputs[i];
    std::string prefix;
    wire::AppendTensorPrefix(wire::kExecuteRequestInputs,
                             {static_cast<int>(spec.data_type), spec.dims, spec.bytes()}, &prefix);
    AppendPiece(prefix, spec.bytes(), &fetched);
    const absl::Span<const ResidentUse> uses = profile.request.uses();
    if (i < uses.size() && uses[i].content() != nullptr)
      RETURN_IF_ERROR(AppendResident(profile, uses[i], &fetched));
    for (const wire::Bytes& piece : checked.decoded.data(i).pieces)
      fetched.append(piece.data(), piece.size());
  }
  *bytes = std::move(fetched);
  return absl::OkStatus();
}

void AppendProfileChoice(const Request& request, std::string* bytes) {
  v1::ProfileRequest chosen;
  chosen.mutable_request()->set_request_id(request.request_id());
  chosen.mutable_request()->set_implementation(request.row().implementation.name);
  chosen.AppendToString(bytes);
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
  RETURN_IF_ERROR(Decode(bytes, &checked));
  const v1::ExecuteRequest& header = checked.decoded.header();
  inspect::ProfilePlan plan;
  ASSIGN_OR_RETURN(plan.kernel, registry.Find(header.kernel()));
  ASSIGN_OR_RETURN(plan.problem, ProblemOf(checked, *plan.kernel->op));
  ASSIGN_OR_RETURN(plan.row, registry.Select(*plan.kernel, header.implementation(), plan.problem,
                                             device->properties()));
  for (size_t i = 0; i < checked.decoded.input_count(); ++i)
    plan.inputs.push_back(checked.decoded.data(i).pieces);
  plan.seed = checked.message.seed();
  plan.request_path = checked.request_path;
  plan.iterations =
      checked.message.iterations() > 0 ? checked.message.iterations() : kIterationsDefault;
  plan.trace = checked.message.trace();
  plan.request_id = header.request_id();
  plan.traceparent = std::string(traceparent);
  ASSIGN_OR_RETURN(const v1::ProfileResponse response,
                   inspect::RunProfile(registry, std::move(device), plan));
  return response.SerializeAsString();
}

}  // namespace warpcall
