// Contenders at one point, taking turns in short rounds so that a machine whose speed drifts hits
// all alike.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "tests/bench/transport_caller.h"
#include "tests/bench/transport_cases.h"
#include "tests/bench/transport_server.h"
#include "tests/bench/transport_stats.h"

namespace warpcall::bench {

// A contender and the server that it calls, which outlives the measurement.
struct Seat {
  Contender contender;
  const BenchServer* server;
};

struct MeasureOptions {
  Point point;
  double seconds = 2;           // of each contender; a little longer when calls are long
  std::string device = {};      // of warpcalld; empty: its choice
  absl::Span<const char> data;  // at least point.bytes of float32
};

// Figures in the order of `seats`. Each contender's answer is verified first. An error names the
// contender.
absl::StatusOr<std::vector<Figures>> Measure(absl::Span<const Seat> seats,
                                             const MeasureOptions& options);

}  // namespace warpcall::bench
