// Waiting for what must come about.
#pragma once

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace warpcall::testing {

// Polls until `condition` holds, for at most 20 s.
template <typename Condition>
bool Eventually(Condition condition) {
  const absl::Time give_up = absl::Now() + absl::Seconds(20);
  while (!condition()) {
    if (absl::Now() > give_up) return false;
    absl::SleepFor(absl::Milliseconds(10));
  }
  return true;
}

}  // namespace warpcall::testing
