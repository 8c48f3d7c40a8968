#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "kernels/common/saturate.h"
#include "kernels/graph/step_graph.h"
#include "proto/common/inspect_limits.h"
#include "proto/common/status_macros.h"
#include "server/inspect/profile.h"
#include "server/transport/codec.h"
#include "server/transport/graph_codec.h"
#include "server/transport/inquiry.h"

namespace warpcall {
namespace {

constexpr int kIterationsDefault = 3;

using google::protobuf::internal::WireFormatLite;
constexpr int kRequest = v1::ProfileRequest::kRequestFieldNumber;
constexpr int kGraph = v1::ProfileRequest::kGraphFieldNumber;
constexpr uint32_t kRequestTag =
    WireFormatLite::MakeTag(kRequest, WireFormatLite::WIRETYPE_LENGTH_DELIMITED);
constexpr uint32_t kGraphTag =
    WireFormatLite::MakeTag(kGraph, WireFormatLite::WIRETYPE_LENGTH_DELIMITED);

// The pieces of a profile's request.
struct ProfileParts {
  std::vector<wire::Bytes> request;
  std::vector<wire::Bytes> graph;
  std::string rest;
};

// A profile's request, taken apart: tensors stay where they are.
struct CheckedProfile {
  explicit CheckedProfile(const Registry& registry) : graph(&registry, nullptr) {}

  CallCodec& codec() { return is_graph ? static_cast<CallCodec&>(graph) : request; }
  const wire::SplitMessage& split() const { return is_graph ? graph.split() : request.split(); }

  v1::ProfileRequest message;  // but for its request or graph
  bool is_graph = false;
  bool makes_inputs = false;  // those of input_specs
  bool request_path = true;
  ExecuteCodec request;  // the two refer to the bytes that were read
  GraphCodec graph;
};

absl::Status NotValid() {
  return absl::InvalidArgumentError(
      "the message is not a valid ProfileRequest: protobuf cannot parse it");
}

// Finds the ExecuteRequest or ExecuteGraphRequest, which may come in several pieces that merge, and
// copies the rest.
absl::Status Split(absl::string_view bytes, ProfileParts* parts) {
  google::protobuf::io::CodedInputStream in(reinterpret_cast<const uint8_t*>(bytes.data()),
                                            static_cast<int>(bytes.size()));
  for (;;) {
    const auto begin = static_cast<size_t>(in.CurrentPosition());
    const uint32_t tag = in.ReadTag();
    if (tag == 0) return in.ConsumedEntireMessage() ? absl::OkStatus() : NotValid();
    if (tag == kRequestTag || tag == kGraphTag) {
      uint32_t length = 0;
      if (!in.ReadVarint32(&length)) return NotValid();
      const auto at = static_cast<size_t>(in.CurrentPosition());
      if (length > bytes.size() - at || !in.Skip(static_cast<int>(length))) return NotValid();
      (tag == kGraphTag ? parts->graph : parts->request).emplace_back(bytes.data() + at, length);
      continue;
    }
    if (!WireFormatLite::SkipField(&in, tag)) return NotValid();
    parts->rest.append(bytes.data() + begin, static_cast<size_t>(in.CurrentPosition()) - begin);
    if (parts->rest.size() > wire::kHeaderBytesMax)
      return absl::InvalidArgumentError(absl::StrCat(
          "the ProfileRequest has more than ", wire::kHeaderBytesMax, " bytes beside its request"));
  }
}

absl::Status DecodeGraph(absl::Span<const wire::Bytes> pieces, CheckedProfile* checked) {
  checked->is_graph = true;
  if (checked->message.input_specs_size() > 0)
    return absl::InvalidArgumentError(
        absl::StrCat("there are ", checked->message.input_specs_size(),
                     " input_specs; the inputs of a graph have data, or are handles"));
  RETURN_IF_ERROR(checked->graph.Decode(pieces));
  for (const v1::GraphOutput& output : checked->graph.header().outputs())
    if (output.keep())
      return absl::InvalidArgumentError(absl::StrCat(GraphOutputLabel(output.name()),
                                                     ": keep is true; Profile keeps no outputs"));
  return absl::OkStatus();
}

// Decodes the request without checking names, types and shapes. `bytes` must stay unchanged as long
// as `checked` lives.
absl::Status Decode(absl::string_view bytes, CheckedProfile* checked) {
  ProfileParts parts;
  RETURN_IF_ERROR(Split(bytes, &parts));
  v1::ProfileRequest& message = checked->message;
  if (!message.ParseFromString(parts.rest)) return NotValid();
  RETURN_IF_ERROR(CheckCount("iterations", message.iterations(), kProfileIterationsMax));
  if (!parts.graph.empty()) {
    if (!parts.request.empty())
      return absl::InvalidArgumentError("there are a request and a graph; one must be absent");
    return DecodeGraph(parts.graph, checked);
  }
  RETURN_IF_ERROR(checked->request.Decode(parts.request));
  if (checked->request.header().keep_outputs())
    return absl::InvalidArgumentError("keep_outputs is true; Profile keeps no outputs");
  checked->makes_inputs = message.input_specs_size() > 0;
  checked->request_path = !checked->makes_inputs || message.request_path();
  return absl::OkStatus();
}

absl::StatusOr<Problem> ProblemOf(CheckedProfile& checked, const Op& op) {
  if (!checked.makes_inputs) {
    ASSIGN_OR_RETURN(Problem problem, checked.codec().ToProblem(op));
    RETURN_IF_ERROR(checked.codec().Inputs(op, problem).status());
    return problem;
  }
  const v1::ExecuteRequest& header = checked.request.header();
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
  const std::string outputs =
      problem.outputs.size() > 1 ? absl::StrCat("the ", problem.outputs.size(), " outputs together")
                                 : absl::StrCat("the output ", ToString(problem.outputs[0]));
  return CheckMessageBytes(deps, outputs, TotalBytes(problem.outputs));
}

// Appends the message but for its inputs.
void AppendHeader(const CheckedProfile& checked, std::string* bytes) {
  v1::ProfileRequest header = checked.message;
  if (checked.is_graph) {
    *header.mutable_graph() = checked.graph.header();
    header.mutable_graph()->clear_inputs();
  } else {
    *header.mutable_request() = checked.request.header();
    header.mutable_request()->clear_inputs();
  }
  header.AppendToString(bytes);
}

const v1::Tensor& InputOf(const CheckedProfile& checked, size_t number) {
  const auto i = static_cast<int>(number);
  return checked.is_graph ? checked.graph.header().inputs(i).tensor()
                          : checked.request.header().inputs(i);
}

// Appends an input, except its data, which must follow at once. The handle says to the child that
// the tensor is on the device before each run.
void AppendInputPrefix(const CheckedProfile& checked, size_t number, const TensorSpec& spec,
                       std::string* bytes) {
  const wire::TensorPrefix prefix = {static_cast<int>(spec.data_type), spec.dims, spec.bytes(),
                                     InputOf(checked, number).handle()};
  std::string input;
  if (checked.is_graph)
    wire::AppendGraphInputPrefix(checked.graph.header().inputs(static_cast<int>(number)).name(),
                                 prefix, &input);
  else
    wire::AppendTensorPrefix(wire::kExecuteRequestInputs, prefix, &input);
  wire::AppendMessage(checked.is_graph ? kGraph : kRequest, input, spec.bytes(), bytes);
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
  CheckedProfile checked(*deps.registry);
  RETURN_IF_ERROR(Decode(bytes, &checked));
  RETURN_IF_ERROR(
      checked.codec().FindResidents(&deps.engine->residents(), request->caller()->name));
  CallSpec spec;
  ASSIGN_OR_RETURN(spec, checked.codec().Spec());
  RETURN_IF_ERROR(request->ReadKernel(std::move(spec)));
  ASSIGN_OR_RETURN(Problem stated, ProblemOf(checked, *request->kernel().op));
  request->SetProblem(std::move(stated));
  const Problem& problem = request->problem();
  if (checked.request_path) RETURN_IF_ERROR(CheckRequestBytes(deps, problem));
  RETURN_IF_ERROR(request->Choose(absl::MakeConstSpan(&problem, 1)));
  return checked.makes_inputs ? inspect::ProfileBytes(problem, checked.request_path) : 0;
}

absl::Status FetchResidents(const HandlesOfProfile& profile, std::string* bytes) {
  CheckedProfile checked(*profile.deps->registry);
  RETURN_IF_ERROR(Decode(*bytes, &checked));
  std::string fetched;
  AppendHeader(checked, &fetched);
  const absl::Span<const ResidentUse> uses = profile.request.uses();
  for (size_t i = 0; i < checked.split().tensor_data.size(); ++i) {
    AppendInputPrefix(checked, i, profile.request.problem().inputs[i], &fetched);
    if (i < uses.size() && uses[i].content() != nullptr)
      RETURN_IF_ERROR(AppendResident(profile, uses[i], &fetched));
    for (const wire::Bytes& piece : checked.split().tensor_data[i].pieces)
      fetched.append(piece.data(), piece.size());
  }
  *bytes = std::move(fetched);
  return absl::OkStatus();
}

void AppendProfileChoice(const Request& request, std::string* bytes) {
  v1::ProfileRequest chosen;
  if (request.problem().graph != nullptr) {
    AddGraphChoice(*request.problem().graph, chosen.mutable_graph());
  } else {
    chosen.mutable_request()->set_request_id(request.request_id());
    chosen.mutable_request()->set_implementation(request.row().implementation.name);
  }
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

namespace {

absl::Status PlanProfile(const Registry& registry, const DeviceProperties& device,
                         CheckedProfile* checked, inspect::ProfilePlan* plan) {
  const v1::ExecuteRequest& header = checked->request.header();
  ASSIGN_OR_RETURN(plan->kernel, registry.Find(header.kernel()));
  ASSIGN_OR_RETURN(plan->problem, ProblemOf(*checked, *plan->kernel->op));
  ASSIGN_OR_RETURN(plan->row,
                   registry.Select(*plan->kernel, header.implementation(), plan->problem, device));
  plan->request_id = header.request_id();
  return absl::OkStatus();
}

absl::Status PlanGraphProfile(const Registry& registry, const DeviceProperties& device,
                              CheckedProfile* checked, inspect::ProfilePlan* plan) {
  ASSIGN_OR_RETURN(const ChosenGraph chosen, checked->graph.ReadChosen(device));
  plan->kernel = &GraphKernel(registry);
  plan->problem = chosen.problem;
  RETURN_IF_ERROR(checked->graph.Inputs(*plan->kernel->op, plan->problem).status());
  plan->step_names = chosen.names;
  ASSIGN_OR_RETURN(plan->row, registry.Select(*plan->kernel, "", plan->problem, device));
  plan->request_id = checked->graph.header().request_id();
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> AnswerProfile(const Registry& registry, std::unique_ptr<Device> device,
                                          const std::string& bytes, absl::string_view traceparent) {
  CheckedProfile checked(registry);
  RETURN_IF_ERROR(Decode(bytes, &checked));
  inspect::ProfilePlan plan;
  if (checked.is_graph)
    RETURN_IF_ERROR(PlanGraphProfile(registry, device->properties(), &checked, &plan));
  else
    RETURN_IF_ERROR(PlanProfile(registry, device->properties(), &checked, &plan));
  for (const wire::FragmentedBytes& data : checked.split().tensor_data) {
    plan.stays.push_back(!InputOf(checked, plan.inputs.size()).handle().empty());
    plan.inputs.push_back(data.pieces);
  }
  plan.seed = checked.message.seed();
  plan.request_path = checked.request_path;
  plan.iterations =
      checked.message.iterations() > 0 ? checked.message.iterations() : kIterationsDefault;
  plan.trace = checked.message.trace();
  plan.traceparent = std::string(traceparent);
  ASSIGN_OR_RETURN(const v1::ProfileResponse response,
                   inspect::RunProfile(registry, std::move(device), plan));
  return response.SerializeAsString();
}

}  // namespace warpcall
