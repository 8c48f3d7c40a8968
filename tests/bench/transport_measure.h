// Measures contenders at one point. They take turns in short rounds, so that a machine whose speed
// drifts hits all alike.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client/cli/load/latency_histogram.h"
#include "tests/bench/transport_cases.h"
#include "tests/bench/transport_table.h"
#include "warpcall/tensor.h"

namespace warpcall::bench {

// A contender and the server that it calls.
struct Seat {
  Contender contender;
  std::string address;
  pid_t pid;
};

struct MeasureOptions {
  Point point;
  double seconds = 2;           // per contender; a little longer when calls are long
  std::string device = {};      // warpcalld's device; empty: its choice
  client::Tensor data = {};     // float32 of one dimension, of which the first point.bytes are sent
  bool one_connection = false;  // all closed loops of a contender on one
};

// Figures in the order of `seats`. Each caller's first answer is verified. An error names the
// contender.
absl::StatusOr<std::vector<Figures>> Measure(absl::Span<const Seat> seats,
                                             const MeasureOptions& options);

// Results of one contender's rounds at one point.
struct Tally {
  cli::LatencyHistogram latencies;
  double wall_seconds = 0;        // all rounds together, without comparing answers
  double server_cpu_seconds = 0;  // spent by the server's process meanwhile
};

// `bytes`: of a request's tensor, and of its answer's.
Figures Summarize(const Tally& tally, size_t bytes);

}  // namespace warpcall::bench
