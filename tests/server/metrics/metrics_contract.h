// Every family of /metrics: names, types and labels are a contract with dashboards and alerts.
#pragma once

#include "tests/server/metrics/metrics_text.h"

namespace warpcall::testing {

struct Seen {
  // The server has a GPU that reports all its figures; without a GPU, families that only GPUs have
  // must be absent.
  bool gpu = false;
  // Requests have run, on a GPU a compiled one; until then, families that appear with their first
  // observation must be absent.
  bool runs = false;
};

// Fails the running test for a family that is missing, unknown, or of another type, and for a
// sample whose labels differ from its family's.
void ExpectContract(const MetricsText& text, Seen seen);

}  // namespace warpcall::testing
