// When a refused call may be tried again. Follows gRPC's retry design (gRFC A6: capped exponential
// backoff, server pushback, a budget); every method of the service is free of side effects, so
// trying again is always safe.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace warpcall::client {

struct RetryOptions {
  // Attempts of one call, the first included; 1: never try again.
  int attempts_max = 5;
  // The pause before attempt n + 1 is drawn from [0.8, 1.2] x min(backoff_max, backoff_initial x
  // 2^(n - 1)).
  absl::Duration backoff_initial = absl::Milliseconds(50);
  absl::Duration backoff_max = absl::Seconds(2);
  // A server that asks for a longer pause than this ends the call.
  absl::Duration pushback_max = absl::Minutes(1);
  // All calls of a client share a budget: a retry takes one token, a success gives
  // `budget_per_success` back, up to `budget_max`. So a server in trouble gets at most a tenth more
  // calls than it answers.
  double budget_max = 50;
  double budget_per_success = 0.1;
};

// Thread-safe.
class RetryBudget {
 public:
  explicit RetryBudget(const RetryOptions& options);

  // False when there is no whole token left.
  bool TakeRetry();
  void AddSuccess();

 private:
  const double max_;
  const double per_success_;
  absl::Mutex mutex_;
  double tokens_ ABSL_GUARDED_BY(mutex_);
};

// A server's refusal of one attempt.
struct Refusal {
  absl::StatusCode code = absl::StatusCode::kOk;
  // The trailer `grpc-retry-pushback-ms`; negative: do not try again.
  std::optional<int64_t> pushback_ms;
};

// The value of the trailer; what is not an integer counts as -1.
int64_t ParsePushbackMs(absl::string_view text);

// The advice of the server that refused, kept with the status that a call ends with: how long to
// leave it alone, negative: what was asked will never fit. Nothing when it gave none.
absl::Status WithRetryPushback(absl::Status status, int64_t pushback_ms);
std::optional<int64_t> RetryPushbackMs(const absl::Status& status);

// Pauses that grow, as RetryOptions says of the one before attempt n + 1. For one thread.
class Backoff {
 public:
  // `options` outlive it.
  explicit Backoff(const RetryOptions& options) : options_(options) {}

  absl::Duration Next();
  // The next pause is a first one.
  void Reset() { pauses_ = 0; }

 private:
  const RetryOptions& options_;
  int pauses_ = 0;
};

// The retries of one call.
class RetrySchedule {
 public:
  // Both outlive the schedule.
  RetrySchedule(const RetryOptions& options, RetryBudget* budget)
      : options_(options), budget_(budget), backoff_(options) {}

  // Returns the delay before the next attempt, or nothing when the refusal is final: the code is
  // not retryable (UNAVAILABLE is; RESOURCE_EXHAUSTED is when the server pushed back, for otherwise
  // gRPC itself refused a message that is too large), attempts or budget are used up, or the next
  // attempt would start at or after `deadline`.
  std::optional<absl::Duration> Next(const Refusal& refusal, absl::Time now, absl::Time deadline);

  int attempts() const { return attempts_; }

 private:
  const RetryOptions& options_;
  RetryBudget* const budget_;
  Backoff backoff_;
  int attempts_ = 1;
};

}  // namespace warpcall::client
