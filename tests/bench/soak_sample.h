// What the soak looks at between its requests.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "tests/bench/transport_server.h"

namespace warpcall::bench {

struct SoakSample {
  int64_t requests = 0;  // answered when it was taken, warm-up not counted
  int64_t input_bytes = 0;
  int64_t resident_bytes = 0;
  int64_t staging_bytes = 0;  // in use, with no request on its way
  int64_t queue_depth = 0;
  int64_t rejected = 0;
  int64_t threads = 0;
  int64_t open_fds = 0;
  int64_t copied_in_bytes = 0;  // on the host
  int64_t copied_out_bytes = 0;
};

// Memory and metrics of a warpcalld at rest: every request is answered. A staging buffer is given
// back a moment after its response was received, so this waits, a few seconds at most, until none
// is in use. Leaves `requests` and `input_bytes` alone.
absl::StatusOr<SoakSample> TakeSample(const BenchServer& server);

// Markdown, one line in about `lines`.
std::string SamplesTable(absl::Span<const SoakSample> samples, size_t lines);

}  // namespace warpcall::bench
