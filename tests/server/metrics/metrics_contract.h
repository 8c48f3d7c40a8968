// Every family of /metrics: names, types and labels are a contract with dashboards and alerts.
#pragma once

#include "tests/server/metrics/metrics_text.h"

namespace warpcall::testing {

// Fails the running test for a family that is missing, unknown, or of another type, and for a
// sample whose labels are not exactly its family's. `gpu`: of a server with a GPU that says all of
// itself; without one, families that only GPUs have must be absent.
void ExpectContract(const MetricsText& text, bool gpu);

}  // namespace warpcall::testing
