#include "client/cpp/rpc/retry.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/random/random.h"
#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace warpcall::client {
namespace {

constexpr double kBackoffGrowth = 2;
// Spreads clients that were refused at the same moment; the width is gRFC A6's.
constexpr double kJitter = 0.2;
// A payload's name is a URL by Abseil's convention; the trailer's says whose this is.
constexpr char kPushbackPayload[] = "warpcall/grpc-retry-pushback-ms";
constexpr char kLostHandlesPayload[] = "warpcall/warpcall-lost-handles";
constexpr char kRequestIdPayload[] = "warpcall/warpcall-request-id";

}  // namespace

RetryBudget::RetryBudget(const RetryOptions& options)
    : max_(options.budget_max), per_success_(options.budget_per_success), tokens_(max_) {}

bool RetryBudget::TakeRetry() {
  absl::MutexLock lock(&mutex_);
  if (tokens_ < 1) return false;
  tokens_ -= 1;
  return true;
}

void RetryBudget::AddSuccess() {
  absl::MutexLock lock(&mutex_);
  tokens_ = std::min(max_, tokens_ + per_success_);
}

int64_t ParsePushbackMs(absl::string_view text) {
  int64_t milliseconds;
  return absl::SimpleAtoi(text, &milliseconds) ? milliseconds : -1;
}

absl::Status WithRetryPushback(absl::Status status, int64_t pushback_ms) {
  status.SetPayload(kPushbackPayload, absl::Cord(absl::StrCat(pushback_ms)));
  return status;
}

std::optional<int64_t> RetryPushbackMs(const absl::Status& status) {
  const auto payload = status.GetPayload(kPushbackPayload);
  if (!payload.has_value()) return std::nullopt;
  return ParsePushbackMs(std::string(*payload));
}

absl::Status WithLostHandles(absl::Status status, absl::string_view trailer) {
  status.SetPayload(kLostHandlesPayload, absl::Cord(trailer));
  return status;
}

std::vector<LostHandle> LostHandles(const absl::Status& status) {
  std::vector<LostHandle> lost;
  const auto payload = status.GetPayload(kLostHandlesPayload);
  if (!payload.has_value()) return lost;
  for (const absl::string_view entry :
       absl::StrSplit(std::string(*payload), ',', absl::SkipEmpty())) {
    const std::pair<std::string, std::string> parts =
        absl::StrSplit(entry, absl::MaxSplits(' ', 1));
    lost.push_back({parts.first, parts.second});
  }
  return lost;
}

absl::Status WithRequestId(absl::Status status, absl::string_view trailer) {
  status.SetPayload(kRequestIdPayload, absl::Cord(trailer));
  return status;
}

std::string RequestIdOf(const absl::Status& status) {
  return std::string(status.GetPayload(kRequestIdPayload).value_or(absl::Cord()));
}

absl::Duration Backoff::Next() {
  absl::Duration pause = options_.backoff_initial;
  for (int i = 0; i < pauses_ && pause < options_.backoff_max; ++i) pause *= kBackoffGrowth;
  ++pauses_;
  absl::BitGen random;
  return std::min(pause, options_.backoff_max) *
         absl::Uniform(absl::IntervalClosed, random, 1 - kJitter, 1 + kJitter);
}

std::optional<absl::Duration> RetrySchedule::Next(const Refusal& refusal, absl::Time now,
                                                  absl::Time deadline) {
  const bool pushed_back = refusal.pushback_ms.has_value();
  const bool retryable = refusal.code == absl::StatusCode::kUnavailable ||
                         (refusal.code == absl::StatusCode::kResourceExhausted && pushed_back);
  if (!retryable || attempts_ >= options_.attempts_max) return std::nullopt;
  if (pushed_back && *refusal.pushback_ms < 0) return std::nullopt;

  absl::Duration pause;
  if (pushed_back) {
    pause = absl::Milliseconds(*refusal.pushback_ms);
    if (pause > options_.pushback_max) return std::nullopt;
    backoff_.Reset();  // the server is in charge: a later failure without its advice starts afresh
  } else {
    pause = backoff_.Next();
  }
  if (now + pause >= deadline || !budget_->TakeRetry()) return std::nullopt;
  ++attempts_;
  return pause;
}

}  // namespace warpcall::client
