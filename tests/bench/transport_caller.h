// One connection to a server under measurement, and the calls made on it.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "tests/bench/transport_cases.h"

namespace warpcall::bench {

// A call that takes longer fails.
inline constexpr int kCallTimeoutSeconds = 120;

// Used by one thread at a time.
class Caller {
 public:
  virtual ~Caller() = default;

  // One call, from the application's buffer to the whole response; looks at status and length only.
  virtual absl::Status Call() = 0;
  // One call more, whose answer is looked at: DATA_LOSS says what is wrong with it.
  virtual absl::Status Verify() = 0;
};

struct CallerOptions {
  Contender contender;
  std::string address;
  std::string device = {};  // of warpcalld; empty: its choice
  // A float32 tensor of one dimension. Stays as it is for as long as the caller lives.
  absl::Span<const char> data;
};

// Connects; UNAVAILABLE when nobody answers.
absl::StatusOr<std::unique_ptr<Caller>> NewCaller(const CallerOptions& options);

// New ones each time: float32 between -6 and 6. `bytes` is a multiple of 4.
std::vector<char> RandomFloats(size_t bytes);

// What `kernel` (identity or gelu) makes of `input`, a float32 tensor: DATA_LOSS when `output` is
// something else. Identity is compared byte by byte, gelu where it was sampled.
absl::Status CheckAnswer(const std::string& kernel, absl::Span<const char> input,
                         absl::Span<const char> output);

}  // namespace warpcall::bench
