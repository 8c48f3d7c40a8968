#include "server/transport/inspect_call.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/common/status_macros.h"
#include "server/engine/retry_pushback.h"
#include "server/log.h"
#include "server/transport/inquiry.h"
#include "server/transport/status.h"

namespace warpcall {
namespace {

// What a gRPC thread may copy; larger messages are read on the inspector's thread.
constexpr size_t kReadAtOnceBytesMax = 256 << 10;

std::string Flat(grpc::ByteBuffer* message) {
  std::vector<grpc::Slice> slices;
  std::string bytes;
  bytes.reserve(message->Length());
  if (message->Dump(&slices).ok())
    for (const grpc::Slice& slice : slices)
      bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  message->Clear();
  return bytes;
}

}  // namespace

InspectCall::InspectCall(ExecuteDeps* deps, Inspection kind, const Unary& unary)
    : deps_(deps),
      kind_(kind),
      context_(unary.context),
      response_(unary.response),
      start_ns_(deps->clock()),
      id_(deps->next_id.fetch_add(1, std::memory_order_relaxed)),
      request_id_(MadeUpRequestId(id_)) {
  deps->open_calls.fetch_add(1);
}

InspectCall* InspectCall::Start(ExecuteDeps* deps, Inspection kind, const Unary& unary) {
  auto* call = new InspectCall(deps, kind, unary);
  absl::Status status = call->Submit(const_cast<grpc::ByteBuffer*>(unary.request));
  if (!status.ok()) call->Finish(status);
  return call;
}

absl::Status InspectCall::Submit(grpc::ByteBuffer* message) {
  if (!message->Valid()) return absl::CancelledError("the call ended before its message had come");
  const auto bytes = static_cast<int64_t>(message->Length());
  if (absl::Status status = CheckMessageLength(*deps_, bytes); !status.ok()) {
    reject_reason_ = RejectReason::kMessageBytes;
    return status;
  }
  auto task = std::make_unique<inspect::Task>();
  task->connection = ConnectionOf(*context_) | 1;  // 0 is the server's own
  task->bytes = bytes;
  task->deadline_ns = DeadlineNs(*context_, start_ns_);
  task->cancelled = &cancelled_;
  if (bytes <= static_cast<int64_t>(kReadAtOnceBytesMax)) {
    inspect::Inquiry inquiry;
    ASSIGN_OR_RETURN(inquiry, Read(message));
    task->prepare = [inquiry = std::move(inquiry)]() mutable { return std::move(inquiry); };
  } else {
    message_.Swap(message);
    task->prepare = [this] { return Read(&message_); };
  }
  task->done = [this](absl::StatusOr<std::string> answer) { Answer(std::move(answer)); };
  absl::Status status = deps_->inspector->Submit(&task);
  if (absl::IsResourceExhausted(status)) reject_reason_ = RejectReason::kQueueRequests;
  if (absl::IsUnavailable(status)) reject_reason_ = RejectReason::kDraining;
  return status;
}

absl::StatusOr<inspect::Inquiry> InspectCall::Read(grpc::ByteBuffer* message) {
  inspect::Inquiry inquiry;
  ASSIGN_OR_RETURN(inquiry, Check(Flat(message)));
  if (!inquiry.request_id.empty()) request_id_ = inquiry.request_id;
  if (const auto trace = FindTraceContext(*context_); trace.has_value())
    inquiry.traceparent = ToTraceparent(*trace);
  device_ = inquiry.device;
  device_index_ = inquiry.device_index;
  row_ = inquiry.row;
  return inquiry;
}

absl::StatusOr<inspect::Inquiry> InspectCall::Check(std::string bytes) const {
  switch (kind_) {
    case Inspection::kBenchmark:
      return ToBenchmarkInquiry(*deps_, std::move(bytes));
    case Inspection::kProfile:
      return ToProfileInquiry(*deps_, std::move(bytes), request_id_);
    case Inspection::kDescribe:
      break;
  }
  return ToDescribeInquiry(*deps_, std::move(bytes));
}

void InspectCall::OnCancel() {
  cancelled_.store(true);
  deps_->inspector->Wake();
}

void InspectCall::Answer(absl::StatusOr<std::string> bytes) {
  absl::Status status = bytes.status();
  if (status.ok()) {
    NoteFindings(*bytes);
    status = CheckMessageBytes(*deps_, "the answer", static_cast<int64_t>(bytes->size()));
  }
  if (status.ok()) {
    auto* owner = new std::string(*std::move(bytes));
    const grpc::Slice slice(
        owner->data(), owner->size(), [](void* p) { delete static_cast<std::string*>(p); }, owner);
    grpc::ByteBuffer answer(&slice, 1);
    response_->Swap(&answer);
  }
  Finish(status);
}

void InspectCall::NoteFindings(const std::string& bytes) {
  if (kind_ == Inspection::kBenchmark) {
    NoteBandwidthOf(bytes, device_index_, deps_->engine);
    return;
  }
  if (kind_ != Inspection::kProfile) return;
  const double occupancy = AchievedOccupancy(bytes);
  if (occupancy >= 0) deps_->metrics->NoteAchievedOccupancy(row_, device_index_, occupancy);
}

void InspectCall::Finish(const absl::Status& status) {
  deps_->metrics->RecordInspection(kind_, status.code(), reject_reason_);
  std::vector<LogField> fields = {{"request_id", request_id_},
                                  {"peer", context_->peer()},
                                  {"device", device_},
                                  {"code", CodeName(status.code())},
                                  {"total_ns", deps_->clock() - start_ns_},
                                  {"error", absl::string_view(status.message())}};
  AppendTraceFields(*context_, &fields);
  // Rare and costly: each is worth a line.
  Log(std::max(LogLevelFor(status), LogLevel::kInfo),
      absl::StrCat(InspectionName(kind_), status.ok() ? " done" : " failed"), fields);
  AddPushback(status, context_);
  grpc::ServerUnaryReactor::Finish(ToGrpcStatus(status));
}

}  // namespace warpcall
