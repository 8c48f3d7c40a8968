#include "server/engine/refusal.h"

#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace warpcall {
namespace {

constexpr char kUrl[] = "warpcall/refusal";

// One payload holds both, as "reason" or "reason,pushback": absl prints several in random order.
struct Refusal {
  RejectReason reason = RejectReason::kNone;
  std::optional<int64_t> pushback_ms;
};

Refusal Read(const absl::Status& status) {
  Refusal refusal;
  const absl::optional<absl::Cord> payload = status.GetPayload(kUrl);
  if (!payload.has_value()) return refusal;
  const std::string text(*payload);
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(text, absl::MaxSplits(',', 1));
  int reason = 0;
  int64_t pushback_ms = 0;
  if (absl::SimpleAtoi(parts.first, &reason)) refusal.reason = static_cast<RejectReason>(reason);
  if (absl::SimpleAtoi(parts.second, &pushback_ms)) refusal.pushback_ms = pushback_ms;
  return refusal;
}

absl::Status Write(const Refusal& refusal, absl::Status status) {
  std::string text = absl::StrCat(static_cast<int>(refusal.reason));
  if (refusal.pushback_ms.has_value()) absl::StrAppend(&text, ",", *refusal.pushback_ms);
  status.SetPayload(kUrl, absl::Cord(text));
  return status;
}

}  // namespace

const char* RejectReasonName(RejectReason reason) {
  switch (reason) {
    case RejectReason::kNone:
      return "";
    case RejectReason::kMessageBytes:
      return "message_bytes";
    case RejectReason::kQueueRequests:
      return "queue_requests";
    case RejectReason::kQueueBytes:
      return "queue_bytes";
    case RejectReason::kQueueWork:
      return "queue_work";
    case RejectReason::kStagingBytes:
      return "staging_bytes";
    case RejectReason::kDeviceMemory:
      return "device_memory";
    case RejectReason::kDeadline:
      return "deadline";
    case RejectReason::kDeadlineUnmeetable:
      return "deadline_unmeetable";
    case RejectReason::kDraining:
      return "draining";
    case RejectReason::kRunTime:
      return "run_time";
    case RejectReason::kQuota:
      return "quota";
    case RejectReason::kInspectQueue:
      return "inspect_queue";
    case RejectReason::kConnections:
      return "connections";
    case RejectReason::kDeviceLost:
      return "device_lost";
  }
  return "";
}

absl::Status WithRetryPushback(absl::Status status, int64_t pushback_ms) {
  const RejectReason reason = Read(status).reason;
  return Write({reason, pushback_ms}, std::move(status));
}

std::optional<int64_t> RetryPushbackMs(const absl::Status& status) {
  return Read(status).pushback_ms;
}

absl::Status RefuseFor(RejectReason reason, absl::Status status) {
  if (reason == RejectReason::kNone) return status;
  const std::optional<int64_t> pushback_ms = Read(status).pushback_ms;
  return Write({reason, pushback_ms}, std::move(status));
}

RejectReason RejectReasonOf(const absl::Status& status) { return Read(status).reason; }

absl::Status WithPrefix(absl::string_view prefix, const absl::Status& status) {
  absl::Status prefixed(status.code(), absl::StrCat(prefix, ": ", status.message()));
  status.ForEachPayload([&prefixed](absl::string_view url, const absl::Cord& payload) {
    prefixed.SetPayload(url, payload);
  });
  return prefixed;
}

std::string StepLabel(absl::string_view name) { return absl::StrCat("step \"", name, "\""); }

}  // namespace warpcall
