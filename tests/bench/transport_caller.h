// One connection to a server under measurement, and the calls made on it.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tests/bench/transport_cases.h"
#include "warpcall/call.h"

namespace warpcall::bench {

// A call that takes longer fails.
inline constexpr int kCallTimeoutSeconds = 120;

// Used by one thread at a time.
class Caller {
 public:
  virtual ~Caller() = default;

  // One call, from the application's buffer to the whole response. Looks at status and length only,
  // or, after a Verify of ModelInfer's answer, at whether this one's tensor is the same to the
  // byte.
  virtual absl::Status Call() = 0;
  // Time that the last Call took to compare the answer: none of the server's time.
  virtual std::chrono::nanoseconds compared() const { return {}; }
  // Makes one more call and checks its answer: DATA_LOSS says what is wrong with the answer.
  virtual absl::Status Verify() = 0;
};

struct CallerOptions {
  ContenderKind kind;
  std::string address;
  client::Call call;            // one input
  bool one_connection = false;  // with all other callers of the process that say so
};

// Connects; UNAVAILABLE when nobody answers.
absl::StatusOr<std::unique_ptr<Caller>> NewCaller(const CallerOptions& options);

}  // namespace warpcall::bench
