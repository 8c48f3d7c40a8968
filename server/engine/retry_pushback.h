// A refusal that tells the caller when to try again. The hint travels inside the Status to whoever
// writes the trailer.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/status/status.h"

namespace warpcall {

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

}  // namespace warpcall
