// The retries of one call, the budget that all calls of a client share (see RetryOptions), and what
// a refusal says beside its status. Internal to the library.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "warpcall/client.h"

namespace warpcall::client {

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

// Keeps the server's advice in the status that a call ends with; RetryPushbackMs reads it.
absl::Status WithRetryPushback(absl::Status status, int64_t pushback_ms);

// Keeps the trailer `warpcall-lost-handles`, "HANDLE WHY[,HANDLE WHY]", in the status that a call
// ends with; LostHandles reads it.
absl::Status WithLostHandles(absl::Status status, absl::string_view trailer);
absl::Status WithRequestId(absl::Status status, absl::string_view trailer);

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
