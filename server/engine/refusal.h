// Why a request is refused or stopped, and when its client may try again. Both travel inside the
// absl::Status, from the function that refuses to the ones that count, log and answer.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "absl/status/status.h"

namespace warpcall {

// Why a request was refused with RESOURCE_EXHAUSTED, UNAVAILABLE or DEADLINE_EXCEEDED before a
// device worked for it, or stopped while one did: the values of the label `reason` of
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
  kDeadlineUnmeetable,  // by the time that such requests, and those ahead, are measured to take
  kDraining,            // the server is on its way out
  kDeviceLost,
  kRunTime,       // max_run_seconds
  kQuota,         // its principal's own limits
  kInspectQueue,  // inspect_queue: a benchmark or the like, no request
  kConnections,   // too many, of one address or in all: a connection, no request
};
inline constexpr int kRejectReasonCount = 15;
// "message_bytes", ...; "" for kNone.
const char* RejectReasonName(RejectReason reason);

// Never: what was asked exceeds a limit that waiting does not change. gRPC's retry design reads a
// negative pushback as "do not retry" (proposal A6).
inline constexpr int64_t kNeverRetry = -1;
// A draining server is usually replaced: long enough for its successor to be found.
inline constexpr int64_t kDrainPushbackMs = 1'000;
// A row that is still to be tried: libraries take up to 25 s to make themselves ready, and clients
// make five attempts.
inline constexpr int64_t kTrialPushbackMs = 5'000;

absl::Status WithRetryPushback(absl::Status status, int64_t pushback_ms);
std::optional<int64_t> RetryPushbackMs(const absl::Status& status);

// Returns `status` with the reason by which it counts in place of the one that it had. Leaves OK,
// and any status for kNone, as they are.
absl::Status RefuseFor(RejectReason reason, absl::Status status);
// Returns the same with a pushback.
inline absl::Status RefuseFor(RejectReason reason, absl::Status status, int64_t pushback_ms) {
  return RefuseFor(reason, WithRetryPushback(std::move(status), pushback_ms));
}
RejectReason RejectReasonOf(const absl::Status& status);

}  // namespace warpcall
