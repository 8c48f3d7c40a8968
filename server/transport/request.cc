#include "server/transport/request.h"

#include <grpc/support/time.h>

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "kernels/common/saturate.h"
#include "kernels/graph/graph_plan.h"
#include "kernels/graph/step_graph.h"
#include "proto/common/check.h"
#include "proto/common/status_macros.h"
#include "server/engine/refusal.h"
#include "server/engine/run_watch.h"
#include "server/log/log.h"
#include "server/transport/caller.h"
#include "server/transport/failure_log.h"
#include "server/transport/grpc_1_51/pollers.h"
#include "server/transport/load_report.h"
#include "server/transport/reference_watch.h"
#include "server/transport/status.h"

namespace warpcall {
namespace {

constexpr char kPushbackTrailer[] = "grpc-retry-pushback-ms";
constexpr char kLostHandlesTrailer[] = "warpcall-lost-handles";
constexpr char kRequestIdTrailer[] = "warpcall-request-id";
// Ids go into every log line about a request.
constexpr size_t kRequestIdBytesMax = 256;
constexpr int64_t kNsPerSecond = 1'000'000'000;

std::optional<tracing::Span> BeginSpan(const ExecuteDeps& deps,
                                       const grpc::CallbackServerContext& context) {
  if (deps.tracer == nullptr) return std::nullopt;
  const auto context_of_caller = FindTraceContext(context);
  if (!context_of_caller.has_value()) return deps.tracer->Begin(std::nullopt);
  tracing::Parent parent{.trace_id = {}, .span_id = {}, .sampled = context_of_caller->sampled};
  tracing::FromHex(context_of_caller->trace_id, &parent.trace_id);
  tracing::FromHex(context_of_caller->parent_id, &parent.span_id);
  return deps.tracer->Begin(parent);
}

// Returns true if the call was accepted, and cut off when the drain was over.
bool IsDrainOver(const absl::Status& status) {
  return RejectReasonOf(status) == RejectReason::kDraining &&
         absl::EndsWith(status.message(), DrainOverError().message());
}

}  // namespace

absl::Status CheckRequestId(absl::string_view id) {
  if (id.size() <= kRequestIdBytesMax) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("request_id has ", id.size(), " bytes; the limit is ", kRequestIdBytesMax));
}

LogLevel LogLevelFor(const absl::Status& status) {
  if (status.ok()) return LogLevel::kDebug;
  // That a server drains is somebody's plan; that it cuts off accepted work is not.
  if (RejectReasonOf(status) == RejectReason::kDraining && !IsDrainOver(status))
    return LogLevel::kInfo;
  return absl::IsInternal(status) || absl::IsUnavailable(status) ? LogLevel::kError
                                                                 : LogLevel::kInfo;
}

bool HasLogLine(const ExecuteDeps& deps, const absl::Status& status, LogLevel level) {
  if (!LogEnabled(level)) return false;
  if (LogEnabled(LogLevel::kDebug)) return true;
  // The log lists all work that the drain cut off, once: as much as had been accepted.
  if (IsDrainOver(status)) return true;
  return status.ok() || deps.parts.failures == nullptr ||
         deps.parts.failures->Admit({status.code(), RejectReasonOf(status), level});
}

int64_t DeadlineNs(const grpc::CallbackServerContext& context, int64_t now_ns) {
  // Not context.deadline(), whose nanoseconds since 1970 wrap around for what is 236 years ahead.
  const gpr_timespec deadline = context.raw_deadline();
  const gpr_timespec left = gpr_time_sub(deadline, gpr_now(deadline.clock_type));
  if (left.tv_sec >= (kNoDeadline - now_ns) / kNsPerSecond) return kNoDeadline;
  return now_ns + std::max<int64_t>(left.tv_sec, -1) * kNsPerSecond + left.tv_nsec;
}

absl::Status CheckMessageBytes(const ExecuteDeps& deps, absl::string_view what, int64_t bytes) {
  if (bytes <= deps.limits.message_bytes_max) return absl::OkStatus();
  return RefuseFor(RejectReason::kMessageBytes,
                   absl::ResourceExhaustedError(
                       absl::StrCat(what, " has ", bytes, " bytes; the limit is ",
                                    deps.limits.message_bytes_max, " (max_message_mib)")),
                   kNeverRetry);
}

absl::Status CheckMessageLength(const ExecuteDeps& deps, int64_t bytes) {
  if (bytes <= MessageLengthMax(deps)) return absl::OkStatus();
  return RefuseFor(
      RejectReason::kMessageBytes,
      absl::ResourceExhaustedError(absl::StrCat(
          "the message has ", bytes, " bytes; the limit is ", deps.limits.message_bytes_max,
          " (max_message_mib) of tensor data and ", kMessageRestBytesMax, " beside them")),
      kNeverRetry);
}

grpc::Status EndOf(const absl::Status& status, grpc::CallbackServerContext* context) {
  if (const auto pushback_ms = RetryPushbackMs(status); pushback_ms.has_value())
    context->AddTrailingMetadata(kPushbackTrailer, absl::StrCat(*pushback_ms));
  if (const auto lost = LostHandles(status); lost.has_value())
    context->AddTrailingMetadata(kLostHandlesTrailer, *lost);
  return ToGrpcStatus(status);
}

void AddLoadReport(const ExecuteDeps& deps, absl::StatusCode code,
                   grpc::CallbackServerContext* context) {
  if (deps.parts.loads != nullptr) deps.parts.loads->Report(code, context);
}

std::optional<TraceContext> FindTraceContext(const grpc::CallbackServerContext& context) {
  const auto [begin, end] = context.client_metadata().equal_range(kTraceparent);
  // Two of them are as good as none: which one would be the caller's?
  if (begin == end || std::next(begin) != end) return std::nullopt;
  return ParseTraceparent({begin->second.data(), begin->second.size()});
}

void AppendCallFields(const grpc::CallbackServerContext& context,
                      const absl::StatusOr<Principal>& caller, std::vector<LogField>* fields) {
  if (caller.ok() && !caller->name.empty()) fields->emplace_back("principal", caller->name);
  const auto trace = FindTraceContext(context);
  if (!trace.has_value()) return;
  fields->emplace_back("trace_id", trace->trace_id);
  fields->emplace_back("parent_id", trace->parent_id);
}

Request::Request(ExecuteDeps* deps, grpc::CallbackServerContext* context,
                 absl::StatusOr<Principal> caller, Kind kind)
    : deps_(deps),
      context_(context),
      kind_(kind),
      start_ns_(deps->clock()),
      caller_(std::move(caller)),
      key_{caller_.ok() ? caller_->id : 0, DeadlineNs(*context, start_ns_),
           deps->calls.next_id.fetch_add(1, std::memory_order_relaxed)},
      span_(BeginSpan(*deps, *context)) {}

absl::Status Request::Admit(absl::string_view method) {
  method_ = method;
  ASSIGN_OR_RETURN(admission_, warpcall::Admit(*deps_, caller_, method));
  return absl::OkStatus();
}

absl::Status Request::Hold(int64_t bytes) { return warpcall::Hold(bytes, &admission_); }

absl::Status Request::CheckPolicy() const {
  if (!device_name_.empty()) RETURN_IF_ERROR(admission_.CheckDevice(device_name_));
  if (kind_ == Kind::kTransfer) return absl::OkStatus();
  if (steps_.empty()) return CheckPolicy(*kernel_, implementation_);
  for (const StepQuestion& step : steps_)
    if (absl::Status status = CheckPolicy(*step.kernel, step.implementation); !status.ok())
      return WithPrefix(StepLabel(step.name), status);
  return absl::OkStatus();
}

absl::Status Request::CheckPolicy(const Kernel& kernel, absl::string_view implementation) const {
  RETURN_IF_ERROR(admission_.CheckKernel(kernel.op->name));
  if (!admission_.limits_implementations()) return absl::OkStatus();
  for (const int id : kernel.rows) {
    const Row& row = deps_->registry->rows()[static_cast<size_t>(id)];
    if (Registry::Pins(row, implementation))
      return admission_.CheckImplementation(row.implementation.name,
                                            FamilyName(row.implementation.family));
  }
  return absl::OkStatus();
}

absl::Status Request::CheckPolicy(absl::string_view device, absl::Span<const int> rows) const {
  RETURN_IF_ERROR(admission_.CheckDevice(device));
  if (!admission_.limits_implementations()) return absl::OkStatus();
  for (const int id : rows) {
    const Implementation& row = deps_->registry->rows()[static_cast<size_t>(id)].implementation;
    RETURN_IF_ERROR(admission_.CheckImplementation(row.name, FamilyName(row.family)));
  }
  return absl::OkStatus();
}

void Request::LimitTime(int64_t ns) {
  if (ns < key_.deadline_ns - start_ns_) key_.deadline_ns = start_ns_ + ns;
}

absl::Status Request::ReadKernel(CallSpec spec) {
  RETURN_IF_ERROR(CheckRequestId(spec.request_id));
  request_id_ = std::string(spec.request_id);
  LimitTime(spec.timeout_ns);
  if (spec.steps.empty()) {
    ASSIGN_OR_RETURN(kernel_, deps_->registry->Find(spec.kernel));
  } else {
    kernel_ = &GraphKernel(*deps_->registry);
  }
  trace_.kernel = kernel_->id;
  RETURN_IF_ERROR(deps_->registry->CheckImplementationName(*kernel_, spec.implementation));
  implementation_ = std::string(spec.implementation);
  device_name_ = std::string(spec.device);
  RETURN_IF_ERROR(ReadResidents(std::move(spec)));
  return CheckPolicy();
}

void Request::SetProblem(Problem problem) {
  problem_ = std::move(problem);
  if (keep_outputs_) keeps_.assign(problem_.outputs.size(), keep_terms_);
  trace_.data_type = problem_.inputs[0].data_type;
  trace_.work = kernel_->op->work(problem_);
}

// A request with tensors on a device runs there.
absl::Status Request::ReadResidents(CallSpec spec) {
  keep_outputs_ = spec.keep_outputs;
  keep_terms_ = std::move(spec.keep_terms);
  RETURN_IF_ERROR(deps_->engine->residents().Check(keep_terms_));
  steps_ = std::move(spec.steps);
  keeps_ = std::move(spec.keeps);
  for (const std::optional<Residents::Terms>& terms : keeps_)
    if (terms.has_value()) RETURN_IF_ERROR(deps_->engine->residents().Check(*terms));
  uses_ = std::move(spec.residents);
  for (const ResidentUse& use : uses_) residents_.push_back(use.content());
  for (size_t i = 0; i < residents_.size(); ++i) {
    if (residents_[i] == nullptr) continue;
    const std::string& name = deps_->engine->device(residents_[i]->device()).properties().name;
    if (device_name_.empty()) device_name_ = name;
    if (device_name_ == name) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        spec.input_labels.empty() ? absl::StrCat("input ", i) : spec.input_labels[i], " is on ",
        name, ", but ", spec.device.empty() ? "an input before it is on " : "the request asks for ",
        device_name_));
  }
  return absl::OkStatus();
}

absl::Status Request::ReserveOutputs() {
  if (keeps_.empty()) return absl::OkStatus();
  WARPCALL_CHECK(keeps_.size() == problem_.outputs.size(), keeps_.size(), problem_.outputs.size());
  residents_.resize(problem_.inputs.size());
  for (size_t i = 0; i < keeps_.size(); ++i) {
    ResidentContentPtr& content = residents_.emplace_back();
    if (!keeps_[i].has_value()) continue;
    ASSIGN_OR_RETURN(
        content, deps_->engine->residents().Reserve(owner(), problem_.outputs[i], trace_.device));
  }
  return absl::OkStatus();
}

void Request::SetDigest(const Sha256& sha256) {
  for (std::optional<Residents::Terms>& terms : keeps_) terms->sha256 = sha256;
}

absl::Status Request::NameOutputs() {
  Residents& residents = deps_->engine->residents();
  for (size_t i = 0; i < keeps_.size(); ++i) {
    kept_.emplace_back();
    if (!keeps_[i].has_value()) continue;
    ResidentContentPtr& content = residents_[problem_.inputs.size() + i];
    if (keeps_[i]->sha256.has_value())
      if (ResidentContentPtr same =
              residents.Find(caller_->name, trace_.device, content->spec(), *keeps_[i]->sha256);
          same != nullptr) {
        content = std::move(same);
        existed_ = true;
      }
    absl::StatusOr<Residents::Named> named = residents.Name(content, *keeps_[i]);
    if (!named.ok()) {
      TakeBackOutputs();
      return std::move(named).status();
    }
    kept_.back() = *std::move(named);
  }
  return absl::OkStatus();
}

void Request::TakeBackOutputs() {
  for (const Residents::Named& named : kept_)
    if (!named.handle.empty()) deps_->engine->residents().TakeBack(caller_->name, named.handle);
  kept_.clear();
}

void Request::EndUses() {
  uses_.clear();
  residents_.clear();
}

int64_t Request::resident_bytes() const {
  int64_t bytes = 0;
  for (const ResidentContentPtr& content : residents_)
    if (content != nullptr) bytes += static_cast<int64_t>(content->bytes());
  return bytes;
}

Question Request::ToQuestion() const {
  WARPCALL_CHECK(kernel_ != nullptr, device_name_);
  Question question = {kernel_, implementation_, device_name_};
  question.steps = steps_;
  if (kind_ == Kind::kKernel && admission_.limits_implementations())
    question.may_use = [this](const Implementation& row) {
      return admission_.MayUseImplementation(row.name, FamilyName(row.family));
    };
  if (admission_.limits_devices())
    question.may_use_device = [this](absl::string_view name) {
      return admission_.MayUseDevice(name);
    };
  return question;
}

absl::Status Request::CheckGraphBytes() const {
  const auto bytes = static_cast<int64_t>(problem_.graph->arena_bytes());
  if (bytes <= deps_->limits.graph_bytes_max) return absl::OkStatus();
  return RefuseFor(RejectReason::kDeviceMemory,
                   absl::ResourceExhaustedError(absl::StrCat(
                       "the graph's intermediate results take ", bytes, " bytes; the limit is ",
                       deps_->limits.graph_bytes_max, " (graph_mib)")),
                   kNeverRetry);
}

absl::Status Request::Choose(absl::Span<const Problem> parts) {
  if (problem_.graph != nullptr) RETURN_IF_ERROR(CheckGraphBytes());
  chooser_ = Chooser(&deps_->engine->choices(), ToQuestion());
  RETURN_IF_ERROR(Take(chooser_.Next(parts)));
  if (chosen_.graph != nullptr) problem_.graph = chosen_.graph;
  return ReserveOutputs();
}

absl::Status Request::ChooseNext(const absl::Status& refusal) {
  if (!IsPlanRefusal(refusal)) return refusal;
  return Take(chooser_.NextAfter(row(), refusal, absl::MakeConstSpan(&problem_, 1)));
}

absl::Status Request::Take(absl::StatusOr<Candidate> found) {
  if (absl::IsPermissionDenied(found.status()))
    return admission_.NoneAllowed(found.status().message());
  ASSIGN_OR_RETURN(chosen_, std::move(found));
  chosen_.WriteTo(&trace_);
  return absl::OkStatus();
}

std::unique_ptr<Job> Request::NewJob(const Problem& part) {
  WARPCALL_CHECK(trace_.row >= 0 && trace_.device >= 0, trace_.row, trace_.device);
  auto job = std::make_unique<Job>();
  job->key = key_;
  job->share = admission_.share();
  job->op = kernel_->op;
  job->row = &row();
  // Other windows may end the request while a lane uses this chooser. The chooser reads only
  // members that the end leaves unchanged.
  job->chooser = chooser_;
  job->chooser.StayOn(trace_.device);  // where it has its staging
  job->device = trace_.device;
  job->problem = part;
  job->load = std::move(chosen_.load);
  if (!residents_.empty()) {
    job->residents.resize(part.inputs.size() + part.outputs.size());
    for (size_t i = 0; i < residents_.size(); ++i) job->residents[i].content = residents_[i];
  }
  size_t operand = 0;
  for (const TensorSpec& spec : part.inputs)
    if (!job->IsResident(operand++)) job->input_bytes += static_cast<int64_t>(spec.bytes());
  for (const TensorSpec& spec : part.outputs)
    if (!job->IsResident(operand++)) job->output_bytes += static_cast<int64_t>(spec.bytes());
  if (deps_->parts.pollers != nullptr)
    deps_->parts.pollers->Observe(SaturatingAdd(job->input_bytes, job->output_bytes));
  return job;
}

absl::Status Request::Outcome(const absl::Status& status) const {
  if (!absl::IsCancelled(status) || !LeftAtDeadline(start_ns_, key_.deadline_ns, deps_->clock()))
    return status;
  return RefuseFor(RejectReason::kDeadline, absl::DeadlineExceededError(absl::StrCat(
                                                "the deadline passed: ", status.message())));
}

absl::Status Request::NameStep(const absl::Status& status) const {
  const std::optional<int> step = StepOf(status);
  if (!step.has_value()) return status;
  return WithPrefix(StepLabel(steps_[static_cast<size_t>(*step)].name), status);
}

void Request::Count(const absl::Status& end) {
  const absl::Status status = Outcome(end);
  trace_.code = status.code();
  trace_.reject_reason = RejectReasonOf(status);
  if (trace_.total_ns == 0) StopClock();
  // Before a client that waits for the answer sends the next.
  admission_.GiveBack();
  EndUses();
  if (span_.has_value()) trace_.trace_id = span_->trace_id;
  if (kind_ == Kind::kKernel)
    deps_->metrics->Record(trace_);
  else
    deps_->metrics->RecordTransfer(trace_);
  LogEnd(status);
  WarnOfReference();
  if (span_.has_value()) TraceEnd(status);
}

void Request::WarnOfReference() const {
  if (deps_->parts.reference_watch == nullptr || !trace_.ran) return;
  if (steps_.empty()) {
    if (trace_.auto_choice != AutoChoice::kNone) WarnOfReference(*kernel_, row());
    return;
  }
  WARPCALL_CHECK(trace_.graph != nullptr, trace_.row);
  for (size_t i = 0; i < steps_.size(); ++i)
    if (Registry::IsAuto(steps_[i].implementation))
      WarnOfReference(*steps_[i].kernel, *trace_.graph->graph->steps()[i].row);
}

void Request::WarnOfReference(const Kernel& kernel, const Row& row) const {
  if (row.implementation.family != Family::kReference) return;
  const int64_t requests = deps_->parts.reference_watch->Count(kernel.id, deps_->clock());
  if (requests > 0)
    Log(LogLevel::kWarning, "the float64 reference serves requests that named no implementation",
        {{"kernel", kernel.op->name}, {"requests", requests}, {"request_id", request_id()}});
}

grpc::Status Request::End(const absl::Status& status) {
  Count(status);
  TellId(status);
  return EndOf(status, context_);
}

void Request::TellId(const absl::Status& status) const {
  if (!status.ok() && request_id_.empty())
    context_->AddTrailingMetadata(kRequestIdTrailer, request_id());
}

void Request::TracePart(const RequestTrace& part) {
  if (!span_.has_value()) return;
  deps_->tracer->Add({.span = *span_, .is_window = true, .trace = part});
}

void Request::TraceEnd(const absl::Status& status) {
  for (const StepQuestion& step : steps_)
    if (trace_.graph != nullptr) trace_.graph->names.push_back(step.name);
  deps_->tracer->Add({.span = *span_,
                      .method = method_,
                      .request_id = request_id(),
                      .error = std::string(status.message()),
                      .begin_ns = start_ns_,
                      .trace = trace_});
}

std::string Request::request_id() const {
  return request_id_.empty() ? absl::StrCat("warpcall-", key_.id) : request_id_;
}

void Request::LogEnd(const absl::Status& status) const {
  const LogLevel level = LogLevelFor(status);
  if (!HasLogLine(*deps_, status, level)) return;
  std::vector<LogField> fields = {{"request_id", request_id()},
                                  {"peer", PeerOf(*deps_, context_->peer())},
                                  {"kernel", kernel_ == nullptr ? "" : kernel_->op->name},
                                  {"implementation", trace_.row < 0 ? "" : implementation()},
                                  {"variant", trace_.row < 0 ? "" : row().implementation.name},
                                  {"code", CodeName(trace_.code)},
                                  {"queue_ns", trace_.queue_ns},
                                  {"kernel_ns", trace_.kernel_ns},
                                  {"device_ns", trace_.device_ns},
                                  {"total_ns", trace_.total_ns},
                                  {"error", absl::string_view(status.message())}};
  AppendCallFields(*context_, caller_, &fields);
  if (kind_ == Kind::kTransfer)
    return Log(level, absl::StrCat(method_, status.ok() ? " done" : " failed"), fields);
  Log(level, status.ok() ? "request done" : "request failed", fields);
}

}  // namespace warpcall
