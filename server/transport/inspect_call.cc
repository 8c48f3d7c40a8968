#include "server/transport/inspect_call.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/common/status_macros.h"
#include "server/engine/refusal.h"
#include "server/log.h"
#include "server/transport/caller.h"
#include "server/transport/inflater.h"
#include "server/transport/inquiry.h"
#include "server/transport/kernel_service.h"
#include "server/transport/reply.h"
#include "server/transport/slices.h"
#include "server/transport/status.h"

namespace warpcall {
namespace {

// What a gRPC thread may copy; larger messages are read on the inspector's thread.
constexpr size_t kReadAtOnceBytesMax = 256 << 10;

}  // namespace

InspectCall::InspectCall(ExecuteDeps* deps, Inspection kind, grpc::CallbackServerContext* context)
    : deps_(deps),
      kind_(kind),
      context_(context),
      start_ns_(deps->clock()),
      caller_(Identify(*deps, *context)),
      id_(deps->next_id.fetch_add(1, std::memory_order_relaxed)),
      request_id_(MadeUpRequestId(id_)) {
  deps->open_calls.fetch_add(1);
}

void InspectCall::Begin(grpc::ByteBuffer* message) {
  handover_.Give();
  absl::Status status = AdmitCaller();
  if (status.ok()) status = CheckMessage(*message);
  if (!status.ok()) return Answer(status);
  const int64_t limit = TakesTensors() ? MessageLengthMax(*deps_) : kSmallMessageBytesMax;
  deps_->inflater->InflateAsync(caller_->id, limit, message,
                                [this, message](absl::Status inflated) {
                                  if (inflated.ok()) inflated = Submit(message);
                                  if (!inflated.ok()) Answer(inflated);
                                });
}

absl::Status InspectCall::AdmitCaller() {
  ASSIGN_OR_RETURN(admission_, Admit(*deps_, caller_, method()));
  return CheckInspectAccess(deps_->inspect_access, PeerOf(*deps_, context_->peer()));
}

absl::Status InspectCall::CheckMessage(const grpc::ByteBuffer& message) {
  if (!message.Valid()) return absl::CancelledError("the call ended before its message had come");
  const auto bytes = static_cast<int64_t>(message.Length());
  return TakesTensors() ? CheckMessageLength(*deps_, bytes) : CheckSmallMessageLength(bytes);
}

absl::Status InspectCall::Submit(grpc::ByteBuffer* message) {
  const auto bytes = static_cast<int64_t>(message->Length());
  RETURN_IF_ERROR(Hold(bytes, &admission_));
  auto task = std::make_unique<inspect::Task>();
  task->principal = caller_->id;
  task->bytes = bytes;
  task->deadline_ns = DeadlineNs(*context_, start_ns_);
  task->cancelled = &cancelled_;
  message_.Swap(message);
  if (bytes <= static_cast<int64_t>(kReadAtOnceBytesMax)) {
    inspect::Inquiry inquiry;
    ASSIGN_OR_RETURN(inquiry, Read());
    task->next = [this, inquiry = std::move(inquiry)](const absl::Status& before) mutable {
      return before.ok() ? std::move(inquiry) : ReadAgain(before);
    };
  } else {
    task->next = [this](const absl::Status& before) {
      return before.ok() ? Read() : ReadAgain(before);
    };
  }
  return Enqueue(std::move(task));
}

absl::Status InspectCall::Enqueue(std::unique_ptr<inspect::Task> task) {
  task->queued = [this](int ahead) {
    context_->AddInitialMetadata(kQueuePositionKey, absl::StrCat(ahead));
    SendInitialMetadata();
  };
  task->used = [this](int64_t cpu_ns) { NoteUse(cpu_ns); };
  if (in_parts_) task->part = [this](std::string part) { AnswerPart(std::move(part)); };
  task->done = [this](absl::StatusOr<std::string> answer) { Answer(std::move(answer)); };
  return deps_->inspector->Submit(&task);
}

bool InspectCall::MayUseRow(const Implementation& row) const {
  return admission_.MayUseImplementation(row.name, FamilyName(row.family)) &&
         !absl::c_linear_search(refused_, row.name);
}

absl::StatusOr<inspect::Inquiry> InspectCall::Read() {
  absl::StatusOr<inspect::Inquiry> inquiry =
      Check([this](const Implementation& row) { return MayUseRow(row); });
  // Who may use nothing that would do is told what would.
  if (absl::IsPermissionDenied(inquiry.status())) inquiry = Check(nullptr);
  RETURN_IF_ERROR(inquiry.status());
  RETURN_IF_ERROR(CheckPolicy(*inquiry));
  if (!IsOfOneRow()) message_.Clear();
  Note(*inquiry);
  return inquiry;
}

absl::StatusOr<inspect::Inquiry> InspectCall::ReadAgain(const absl::Status& refusal) {
  if (!IsOfOneRow() || !IsPlanRefusal(refusal)) return refusal;
  refused_.push_back(deps_->registry->rows()[static_cast<size_t>(row_)].implementation.name);
  reasons_.push_back(absl::StrCat(refused_.back(), ": ", refusal.message()));
  absl::StatusOr<inspect::Inquiry> inquiry =
      Check([this](const Implementation& row) { return MayUseRow(row); });
  if (absl::IsPermissionDenied(inquiry.status()))
    return refused_.size() == 1 ? refusal : absl::UnimplementedError(absl::StrJoin(reasons_, "; "));
  RETURN_IF_ERROR(inquiry.status());
  RETURN_IF_ERROR(CheckPolicy(*inquiry));
  cpu_ns_ = 0;  // of another process
  Note(*inquiry);
  return inquiry;
}

void InspectCall::Note(const inspect::Inquiry& inquiry) {
  if (!inquiry.request_id.empty()) request_id_ = inquiry.request_id;
  kernel_ = inquiry.kernel;
  kernel_name_ = deps_->registry->kernels()[static_cast<size_t>(kernel_)].op->name;
  inputs_ = inquiry.inputs;
  device_ = inquiry.device;
  device_index_ = inquiry.device_index;
  row_ = inquiry.row;
  of_whole_memory_ = inquiry.of_whole_memory;
  problem_ = inquiry.problem;
  chosen_because_ = inquiry.chosen_because;
}

absl::StatusOr<inspect::Inquiry> InspectCall::Check(const MayUse& may_use) const {
  absl::StatusOr<inspect::Inquiry> inquiry = ToInquiry(Flat(message_), may_use);
  RETURN_IF_ERROR(inquiry.status());
  if (const auto trace = FindTraceContext(*context_); trace.has_value())
    inquiry->traceparent = ToTraceparent(*trace);
  inquiry->in_parts = in_parts_;
  return inquiry;
}

absl::StatusOr<inspect::Inquiry> InspectCall::ToInquiry(std::string bytes,
                                                        const MayUse& may_use) const {
  switch (kind_) {
    case Inspection::kBenchmark:
      return ToBenchmarkInquiry(*deps_, std::move(bytes));
    case Inspection::kTune:
      return ToTuneInquiry(*deps_, std::move(bytes));
    case Inspection::kProfile:
      return ToProfileInquiry(*deps_, may_use, std::move(bytes), request_id_);
    case Inspection::kDescribe:
      break;
  }
  return ToDescribeInquiry(*deps_, may_use, std::move(bytes));
}

const char* InspectCall::method() const {
  switch (kind_) {
    case Inspection::kBenchmark:
      return in_parts_ ? "BenchmarkStream" : "Benchmark";
    case Inspection::kProfile:
      return "Profile";
    case Inspection::kTune:
      return "Tune";
    case Inspection::kDescribe:
      break;
  }
  return "Describe";
}

// The child chooses among all rows: where not all are allowed, what is asked has to say which.
absl::Status InspectCall::CheckPolicy(const inspect::Inquiry& inquiry) const {
  const Kernel& kernel = deps_->registry->kernels()[static_cast<size_t>(inquiry.kernel)];
  RETURN_IF_ERROR(admission_.CheckKernel(kernel.op->name));
  RETURN_IF_ERROR(admission_.CheckDevice(inquiry.device));
  if (!admission_.limits_implementations()) return absl::OkStatus();
  std::vector<int> rows = inquiry.rows;
  if (inquiry.row >= 0) rows.push_back(inquiry.row);
  for (const int id : rows.empty() ? kernel.rows : rows) {
    const Implementation& row = deps_->registry->rows()[static_cast<size_t>(id)].implementation;
    RETURN_IF_ERROR(admission_.CheckImplementation(row.name, FamilyName(row.family)));
  }
  return absl::OkStatus();
}

void InspectCall::Cancel() {
  handover_.Take();
  cancelled_.store(true);
  deps_->inspector->Wake();
}

absl::StatusOr<grpc::ByteBuffer> InspectCall::ToMessage(std::string bytes) {
  NoteFindings(bytes);
  if (kind_ == Inspection::kDescribe) {
    // The child told all but this.
    v1::DescribeResponse why;
    why.set_chosen_because(chosen_because_);
    why.AppendToString(&bytes);
  }
  RETURN_IF_ERROR(CheckMessageBytes(*deps_, "the answer", static_cast<int64_t>(bytes.size())));
  auto* owner = new std::string(std::move(bytes));
  const grpc::Slice slice(
      owner->data(), owner->size(), [](void* p) { delete static_cast<std::string*>(p); }, owner);
  return grpc::ByteBuffer(&slice, 1);
}

void InspectCall::NoteUse(int64_t cpu_ns) {
  if (cpu_ns <= cpu_ns_) return;
  deps_->metrics->RecordInspectionUse(
      {.kind = kind_, .kernel = kernel_, .cpu_ns = cpu_ns - cpu_ns_});
  cpu_ns_ = cpu_ns;
}

void InspectCall::NoteFindings(const std::string& bytes) {
  deps_->metrics->RecordInspectionUse(
      {.kind = kind_, .kernel = kernel_, .device_ns = DeviceNsOf(kind_, bytes)});
  if (kind_ == Inspection::kBenchmark || kind_ == Inspection::kTune) {
    if (of_whole_memory_) NoteBandwidthOf(bytes, device_index_, deps_->engine);
    if (kind_ == Inspection::kTune)
      LearnFrom(*deps_, {kernel_, problem_, deps_->engine->device(device_index_).properties()},
                bytes);
    return;
  }
  if (kind_ != Inspection::kProfile) return;
  const double occupancy = AchievedOccupancy(bytes);
  if (occupancy >= 0) deps_->metrics->NoteAchievedOccupancy(row_, device_index_, occupancy);
}

grpc::Status InspectCall::End(const absl::Status& status) {
  admission_ = Admission();  // before a client that waits for the answer sends the next
  message_.Clear();
  deps_->metrics->RecordInspection(kind_, status.code(), RejectReasonOf(status));
  LogEnd(status);
  const grpc::Status end = EndOf(status, context_);
  handover_.Give();
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

void InspectCall::LogEnd(const absl::Status& status) const {
  // Rare and costly: each is worth a line.
  const LogLevel level = std::max(LogLevelFor(status), LogLevel::kInfo);
  if (!HasLogLine(*deps_, status, level)) return;
  std::vector<LogField> fields = {{"request_id", request_id_},
                                  {"peer", PeerOf(*deps_, context_->peer())},
                                  {"kernel", kernel_name_},
                                  {"inputs", inputs_},
                                  {"device", device_},
                                  {"code", CodeName(status.code())},
                                  {"cpu_ns", cpu_ns_},
                                  {"total_ns", deps_->clock() - start_ns_},
                                  {"error", absl::string_view(status.message())}};
  AppendCallFields(*context_, caller_, &fields);
  Log(level, absl::StrCat(InspectionName(kind_), status.ok() ? " done" : " failed"), fields);
}

}  // namespace warpcall
