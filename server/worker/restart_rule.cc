#include "server/worker/restart_rule.h"

#include "proto/common/check.h"

namespace warpcall::worker {

absl::optional<int64_t> RestartRule::PauseAfterFailure(int64_t now_ns) {
  WARPCALL_DCHECK(failures_ns_.empty() || failures_ns_.back() <= now_ns, now_ns);
  std::erase_if(failures_ns_, [now_ns](int64_t then_ns) { return then_ns <= now_ns - kWindowNs; });
  failures_ns_.push_back(now_ns);
  if (failures_ns_.size() >= kFailuresMax) return absl::nullopt;
  return failures_ns_.size() == 1 ? 0 : kSecondPauseNs;
}

}  // namespace warpcall::worker
