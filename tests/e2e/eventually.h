// Waits for a condition that must come true.
#pragma once

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace warpcall::testing {

// Polls until `condition` holds, for at most 90 s: longer than anything takes on a slow and busy
// machine, and less than a test may take in all.
template <typename Condition>
bool Eventually(Condition condition) {
  const absl::Time give_up = absl::Now() + absl::Seconds(90);
  while (!condition()) {
    if (absl::Now() > give_up) return false;
    absl::SleepFor(absl::Milliseconds(10));
  }
  return true;
}

}  // namespace warpcall::testing
