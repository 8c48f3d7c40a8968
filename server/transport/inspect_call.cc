#include "server/transport/inspect_call.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/common/human_figures.h"
#include "proto/common/status_macros.h"
#include "server/engine/refusal.h"
#include "server/inspect/memory_ceiling.h"
#include "server/log/log.h"
#include "server/transport/caller.h"
#include "server/transport/inflater.h"
#include "server/transport/inquiry.h"
#include "server/transport/kernel_service.h"
#include "server/transport/reply.h"
#include "server/transport/slices.h"
#include "server/transport/status.h"

namespace warpcall {
namespace {

// Most bytes that a gRPC thread copies; the inspector's thread reads larger messages.
constexpr size_t kReadAtOnceBytesMax = 256 << 10;

// Pushes that wait, of a connection that no principal's name stands for.
constexpr int kNamelessPushesMax = 2;

}  // namespace

InspectCall::InspectCall(ExecuteDeps* deps, Inspection kind, grpc::CallbackServerContext* context,
                         Handover* handover)
    : deps_(deps),
      kind_(kind),
      context_(context),
      handover_(handover),
      request_(deps, context, Identify(*deps, *context)) {}

void InspectCall::Begin(grpc::ByteBuffer* message) {
  handover_->Give();
  absl::Status status = request_.Admit(method());
  if (status.ok()) status = CheckAccess();
  if (status.ok()) status = CheckMessage(*message);
  if (!status.ok()) return Answer(status);
  deps_->parts.inflater->InflateAsync(request_.key().principal, MessageBytesMax(), message,
                                      [this, message](absl::Status inflated) {
                                        if (inflated.ok()) inflated = Submit(message);
                                        if (!inflated.ok()) Answer(inflated);
                                      });
}

absl::Status InspectCall::CheckAccess() const {
  const std::string peer = PeerOf(*deps_, context_->peer());
  if (kind_ == Inspection::kPush) return CheckPushAccess(deps_->limits.push, request_, peer);
  return CheckInspectAccess(deps_->limits.inspect_access, peer);
}

int64_t InspectCall::MessageBytesMax() const {
  if (TakesTensors()) return MessageLengthMax(*deps_);
  return kind_ == Inspection::kPush ? kPushMessageBytesMax : kSmallMessageBytesMax;
}

absl::Status InspectCall::CheckMessage(const grpc::ByteBuffer& message) {
  if (!message.Valid()) return absl::CancelledError("the call ended before its message had come");
  const auto bytes = static_cast<int64_t>(message.Length());
  return TakesTensors() ? CheckMessageLength(*deps_, bytes)
                        : CheckMessageLengthOf(bytes, MessageBytesMax());
}

absl::Status InspectCall::Submit(grpc::ByteBuffer* message) {
  const auto bytes = static_cast<int64_t>(message->Length());
  RETURN_IF_ERROR(request_.Hold(bytes));
  message_.Swap(message);
  if (bytes <= static_cast<int64_t>(kReadAtOnceBytesMax)) RETURN_IF_ERROR(Read());
  auto task = std::make_unique<inspect::Task>();
  task->principal = request_.key().principal;
  task->is_push = kind_ == Inspection::kPush;
  if (task->is_push && request_.caller()->name.empty()) task->waiting_max = kNamelessPushesMax;
  task->bytes = bytes;
  task->deadline_ns = request_.key().deadline_ns;
  if (task->is_push) task->ns_max = kPushNsMax;
  task->cancelled = &cancelled_;
  task->next = [this](const absl::Status& before) { return Next(before); };
  task->queued = [this](int ahead) {
    context_->AddInitialMetadata(kQueuePositionKey, absl::StrCat(ahead));
    SendInitialMetadata();
    if (kind_ == Inspection::kPush) AnswerPart(QueuedEvent(ahead));
  };
  task->used = [this](int64_t cpu_ns) { ChargeUse(cpu_ns); };
  if (in_parts_) task->part = [this](std::string part) { AnswerPart(std::move(part)); };
  task->done = [this](absl::StatusOr<std::string> answer) {
    if (kind_ == Inspection::kPush && absl::IsDeadlineExceeded(answer.status()))
      answer = LatePush(answer.status());
    Answer(std::move(answer));
  };
  return deps_->inspector->Submit(&task);
}

absl::Status InspectCall::Read() {
  bytes_ = Flat(message_);
  message_.Clear();
  const auto read = [&]() -> absl::StatusOr<int64_t> {
    switch (kind_) {
      case Inspection::kBenchmark:
        return ReadBenchmark(*deps_, &bytes_, &request_);
      case Inspection::kTune:
        return ReadTune(*deps_, bytes_, &request_);
      case Inspection::kProfile:
        return ReadProfile(*deps_, bytes_, &request_);
      case Inspection::kPush:
        return ReadPush(*deps_, bytes_, &request_);
      case Inspection::kDescribe:
        break;
    }
    return ReadDescribe(*deps_, &bytes_, &request_);
  };
  ASSIGN_OR_RETURN(operand_bytes_, read());
  is_read_ = true;
  return CheckOperands();
}

absl::Status InspectCall::CheckOperands() {
  request_.chosen().load = DeviceLoad();  // its child's work is not the device's lanes'
  if (operand_bytes_ == 0) return absl::OkStatus();
  return CheckOperandBytes(*deps_, kind_ == Inspection::kProfile ? "profiling" : "benchmarking",
                           operand_bytes_, deps_->engine->device(request_.trace().device));
}

absl::Status InspectCall::LatePush(const absl::Status& status) const {
  const int64_t start_ns = request_.start_ns();
  const int64_t turn_ns = turn_ns_ == 0 ? deps_->clock() : turn_ns_;
  return absl::DeadlineExceededError(
      absl::StrCat("the push took longer than its limit of ",
                   HumanTime(request_.key().deadline_ns - start_ns), ": it waited ",
                   HumanTime(turn_ns - start_ns), " in the queue; ", status.message()));
}

absl::StatusOr<inspect::Inquiry> InspectCall::Next(const absl::Status& before) {
  if (turn_ns_ == 0) turn_ns_ = deps_->clock();
  if (!before.ok()) {
    if (!IsOfOneRow()) return before;
    RETURN_IF_ERROR(request_.ChooseNext(before));
    RETURN_IF_ERROR(CheckOperands());
    cpu_ns_ = 0;  // the next row has a new process
  } else if (!is_read_) {
    RETURN_IF_ERROR(Read());
  }
  if (!request_.uses().empty()) {
    fetches_from_.store(request_.trace().device);
    RETURN_IF_ERROR(FetchResidents({deps_, context_, request_, cancelled_}, &bytes_));
    request_.EndUses();
  }
  inspect::Inquiry inquiry;
  inquiry.kind = kind_;
  inquiry.device = request_.device();
  inquiry.properties = &deps_->engine->device(request_.trace().device).properties();
  inquiry.request = bytes_;
  if (kind_ == Inspection::kProfile) AppendProfileChoice(request_, &inquiry.request);
  if (kind_ == Inspection::kDescribe) AppendDescribeChoice(request_, &inquiry.request);
  if (const auto trace = FindTraceContext(*context_); trace.has_value())
    inquiry.traceparent = ToTraceparent(*trace);
  inquiry.in_parts = in_parts_;
  inquiry.deadline_ns = request_.key().deadline_ns;
  return inquiry;
}

const char* InspectCall::method() const {
  switch (kind_) {
    case Inspection::kBenchmark:
      return in_parts_ ? "BenchmarkStream" : "Benchmark";
    case Inspection::kProfile:
      return "Profile";
    case Inspection::kTune:
      return "Tune";
    case Inspection::kPush:
      return "Push";
    case Inspection::kDescribe:
      break;
  }
  return "Describe";
}

void InspectCall::Cancel() {
  cancelled_.store(true);
  if (const int device = fetches_from_.load(); device >= 0)
    deps_->engine->Cancel(device, request_.key());
  deps_->inspector->Wake();
}

absl::StatusOr<grpc::ByteBuffer> InspectCall::ToMessage(std::string bytes) {
  KeepFindings(bytes);
  if (kind_ == Inspection::kDescribe && request_.problem().graph == nullptr) {
    // The child told all but this.
    const Row& row = deps_->registry->rows()[static_cast<size_t>(request_.trace().row)];
    v1::DescribeResponse why;
    why.set_chosen_because(
        WhyChosen(*deps_->registry, row, request_.chosen().tuned.get(), request_.requested()));
    why.AppendToString(&bytes);
  }
  RETURN_IF_ERROR(CheckMessageBytes(*deps_, "the answer", static_cast<int64_t>(bytes.size())));
  auto* owner = new std::string(std::move(bytes));
  const grpc::Slice slice(
      owner->data(), owner->size(), [](void* p) { delete static_cast<std::string*>(p); }, owner);
  return grpc::ByteBuffer(&slice, 1);
}

void InspectCall::ChargeUse(int64_t cpu_ns) {
  if (cpu_ns <= cpu_ns_) return;
  deps_->metrics->RecordInspectionUse(
      {.kind = kind_, .kernel = request_.trace().kernel, .cpu_ns = cpu_ns - cpu_ns_});
  cpu_ns_ = cpu_ns;
}

void InspectCall::KeepPushFindings(const std::string& bytes) {
  const int64_t now_ns = deps_->clock();
  verdict_ = RecordPushEvent(bytes, now_ns - std::exchange(part_ns_, now_ns), deps_->metrics);
}

void InspectCall::KeepFindings(const std::string& bytes) {
  if (kind_ == Inspection::kPush) KeepPushFindings(bytes);
  const RequestTrace& trace = request_.trace();
  deps_->metrics->RecordInspectionUse(
      {.kind = kind_, .kernel = trace.kernel, .device_ns = DeviceNsOf(kind_, bytes)});
  if (trace.device < 0) return;  // it waits
  const DeviceProperties& device = deps_->engine->device(trace.device).properties();
  if (kind_ == Inspection::kBenchmark || kind_ == Inspection::kTune) {
    if (inspect::CopiesPassCaches(trace.work.bytes, device))
      SetBandwidthFrom(bytes, trace.device, deps_->engine);
    SetMultiplyAddsFrom(bytes, trace.device,
                        ArithmeticOf(*request_.kernel().op, request_.problem()), deps_->engine);
    if (kind_ == Inspection::kTune)
      LearnFrom(*deps_, {trace.kernel, request_.problem(), device}, bytes);
    return;
  }
  if (kind_ != Inspection::kProfile) return;
  const double occupancy = AchievedOccupancy(bytes);
  if (occupancy >= 0 && request_.kernel().is_named())
    deps_->metrics->SetAchievedOccupancy(trace.row, trace.device, occupancy);
}

grpc::Status InspectCall::End(const absl::Status& status) {
  request_.GiveBack();  // before a client that waits for the answer sends the next
  message_.Clear();
  bytes_ = std::string();  // gRPC may keep the call until its client has read the answer
  // Rare and costly: each is worth a line.
  const LogLevel level = std::max(LogLevelFor(status), LogLevel::kInfo);
  const bool is_logged = HasLogLine(*deps_, status, level);
  Record(status, is_logged);
  if (is_logged) LogEnd(status, level);
  const grpc::Status end = EndOf(status, context_);
  handover_->Give();
  return end;
}

UnaryInspectCall* UnaryInspectCall::Start(ExecuteDeps* deps, Inspection kind, const Unary& unary) {
  auto* call = new UnaryInspectCall(deps, kind, unary);
  call->Begin(unary.message());
  return call;
}

void UnaryInspectCall::Answer(absl::StatusOr<std::string> bytes) {
  absl::Status status = bytes.status();
  if (status.ok()) {
    absl::StatusOr<grpc::ByteBuffer> message = ToMessage(*std::move(bytes));
    if (message.ok()) unary_.response->Swap(&*message);
    status = message.status();
  }
  Finish(End(status));
}

void InspectCall::Record(const absl::Status& status, bool is_logged) {
  const RequestTrace& trace = request_.trace();
  InspectionEnd end = {.kind = kind_,
                       .code = status.code(),
                       .reason = RejectReasonOf(status),
                       .kernel = trace.kernel,
                       .device = trace.device,
                       .total_ns = deps_->clock() - request_.start_ns()};
  if (is_logged && request_.caller().ok()) end.principal = request_.caller()->name;
  end.push = verdict_.name();
  end.verdict = verdict_.status();
  deps_->metrics->RecordInspection(end);
}

void InspectCall::LogEnd(const absl::Status& status, LogLevel level) {
  const RequestTrace& trace = request_.trace();
  std::vector<LogField> fields = {{"request_id", request_.request_id()},
                                  {"peer", PeerOf(*deps_, context_->peer())},
                                  {"kernel", trace.kernel < 0 ? "" : request_.kernel().op->name},
                                  {"inputs", InputsToString(request_.problem())},
                                  {"device", trace.device < 0 ? "" : request_.device()},
                                  {"code", CodeName(status.code())},
                                  {"cpu_ns", cpu_ns_},
                                  {"total_ns", deps_->clock() - request_.start_ns()},
                                  {"error", absl::string_view(status.message())}};
  if (kind_ == Inspection::kPush) {
    fields.push_back({"push", verdict_.name()});
    fields.push_back({"verdict", verdict_.status()});
  }
  AppendCallFields(*context_, request_.caller(), &fields);
  Log(level, absl::StrCat(InspectionName(kind_), status.ok() ? " done" : " failed"), fields);
}

}  // namespace warpcall
