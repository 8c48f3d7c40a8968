// Reads BenchmarkStream's messages; transport is elsewhere. Internal to the library.
#pragma once

#include "absl/status/status.h"
#include "client/cpp/codec/codec.h"
#include "warpcall/inspect.h"

namespace warpcall::client {

// Adds a response of the stream to `report` and shows the report to `watch`. INTERNAL for an
// implementation that came before.
absl::Status AddBenchmark(Fragments response, const BenchmarkWatch& watch, BenchmarkReport* report);

}  // namespace warpcall::client
