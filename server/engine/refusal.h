// Why a request is refused or stopped, and when its client may try again. Both travel inside the
// absl::Status, from the function that refuses to the ones that count, log and answer.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace warpcall {

// Why a request was refused with RESOURCE_EXHAUSTED, UNAVAILABLE or DEADLINE_EXCEEDED before a
// device worked for it, or stopped on the device: the values of the label `reason` of
// warpcall_rejected_total.
enum class RejectReason : uint8_t {
  kNone,
  kMessageBytes,        // request or response over max_message_mib
  kQueueRequests,       // queue_limit
  kQueueBytes,          // queue_mib
  kQueueWork,           // queue_seconds
  kStagingBytes,        // staging_mib
  kDeviceMemory,        // out of device memory
  kDeadline,            // passed before the work began
  kDeadlineUnmeetable,  // by the measured time of such requests and of those ahead
  kDraining,            // the server is shutting down
  kDeviceLost,
  kRunTime,       // max_run_seconds
  kQuota,         // its principal's own limits
  kInspectQueue,  // inspect_queue: a benchmark or another inspection, no request
  kConnections,   // too many, of one address or in all: a connection, no request
};
inline constexpr int kRejectReasonCount = 15;
// "message_bytes", ...; "" for kNone.
const char* RejectReasonName(RejectReason reason);

// Never retry: the request exceeds a limit that waiting does not change. gRPC's retry design reads
// a negative pushback as "do not retry" (proposal A6).
inline constexpr int64_t kNeverRetry = -1;
// A draining server is usually replaced: long enough to find its successor.
inline constexpr int64_t kDrainPushbackMs = 1'000;
// An implementation is still on trial: libraries take up to 25 s to initialize, and clients make
// five attempts.
inline constexpr int64_t kTrialPushbackMs = 5'000;

absl::Status WithRetryPushback(absl::Status status, int64_t pushback_ms);
std::optional<int64_t> RetryPushbackMs(const absl::Status& status);

// Returns `status` with `reason`, under which it is counted, in place of its former reason. Leaves
// OK, and any status for kNone, as they are.
absl::Status RefuseFor(RejectReason reason, absl::Status status);
// Returns `status` with both a reason and a pushback.
inline absl::Status RefuseFor(RejectReason reason, absl::Status status, int64_t pushback_ms) {
  return RefuseFor(reason, WithRetryPushback(std::move(status), pushback_ms));
}
RejectReason RejectReasonOf(const absl::Status& status);

// Returns an error as it is but for "PREFIX: " before its message.
absl::Status WithPrefix(absl::string_view prefix, const absl::Status& status);
// "step \"NAME\"": the prefix of an error of a graph's step.
std::string StepLabel(absl::string_view name);

}  // namespace warpcall
