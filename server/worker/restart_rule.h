// When a worker that ended is started again, and when its device is given up.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/optional.h"

namespace warpcall::worker {

// Three failures within a minute are a device that does not come back: the first may be a request's
// doing, a second that of what was retried.
class RestartRule {
 public:
  static constexpr size_t kFailuresMax = 3;
  static constexpr int64_t kWindowNs = 60'000'000'000;
  // The first start is at once, so that a device is back before most callers have tried again.
  static constexpr int64_t kSecondPauseNs = 1'000'000'000;

  // A worker has ended, or one that was started did not come up. How long to wait before the next
  // start; nothing: the device is lost.
  absl::optional<int64_t> PauseAfterFailure(int64_t now_ns);

 private:
  std::vector<int64_t> failures_ns_;  // when, within the last minute
};

}  // namespace warpcall::worker
