// How long a client under test waits.
#pragma once

#include "absl/time/time.h"
#include "warpcall/client.h"

namespace warpcall::testing {

// More than any call here takes, so that a defect fails a test instead of hanging it.
inline constexpr absl::Duration kPatience = absl::Seconds(60);

// Tries again at once.
inline client::ClientOptions Patient() {
  return {.timeout = kPatience, .sleep = [](absl::Duration) {}};
}

}  // namespace warpcall::testing
