// One large tensor through the client library: cut up over several connections, and over one.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "tests/bench/transport_bars.h"
#include "tests/bench/transport_server.h"

namespace warpcall::bench {

inline constexpr size_t kStripedBytes = size_t{256} << 20;

struct StripeOptions {
  const BenchServer* server;
  std::string device = {};      // empty: the server's choice
  absl::Span<const char> data;  // at least kStripedBytes of float32
  bool on_gpu = false;          // without one the bar is not judged: the kernel takes the cores
};

// gelu of kStripedBytes over TCP, both ways in turn.
absl::StatusOr<Bar> JudgeStriping(const StripeOptions& options);

}  // namespace warpcall::bench
