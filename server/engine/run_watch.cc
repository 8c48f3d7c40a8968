#include "server/engine/run_watch.h"

#include "absl/strings/str_cat.h"
#include "server/engine/refusal.h"

namespace warpcall {

std::string RunLimitText(int64_t run_ns_max) {
  return absl::StrCat("the limit is ", Seconds(run_ns_max), " s (max_run_seconds)");
}

absl::Status CheckRunTime(const ServiceHistory::Prediction& prediction, int64_t run_ns_max) {
  if (prediction.ns_at_least <= run_ns_max) return absl::OkStatus();
  return RefuseFor(
      RejectReason::kRunTime,
      absl::ResourceExhaustedError(absl::StrCat(
          "the work is predicted to hold its lane for ", static_cast<double>(prediction.ns) / 1e9,
          " s, by what such work took; ", RunLimitText(run_ns_max))),
      kNeverRetry);
}

absl::Status DrainOverError() {
  return RefuseFor(
      RejectReason::kDraining,
      absl::UnavailableError("the server ends, and the request was not done within drain_seconds"),
      kDrainPushbackMs);
}

bool RunWatch::IsSet() const {
  return seen_.load(std::memory_order_relaxed) != Reason::kNone || Remember(Look());
}

bool RunWatch::MustEnd() const { return Remember(LookAtLimits()); }

RunWatch::Reason RunWatch::Look() const {
  if (job_.cancelled->load(std::memory_order_relaxed)) return Reason::kCancelled;
  if (limits_.clock() >= job_.key.deadline_ns) return Reason::kDeadline;
  return LookAtLimits();
}

RunWatch::Reason RunWatch::LookAtLimits() const {
  if (limits_.drain_over.load(std::memory_order_relaxed)) return Reason::kDrainOver;
  if (limits_.clock() - start_ns_ >= limits_.run_ns_max) return Reason::kRunTime;
  return Reason::kNone;
}

bool RunWatch::Remember(Reason reason) const {
  if (reason == Reason::kNone) return false;
  Reason none = Reason::kNone;
  seen_.compare_exchange_strong(none, reason, std::memory_order_relaxed);
  return true;
}

absl::Status RunWatch::Check() const {
  switch (seen_.load(std::memory_order_relaxed)) {
    case Reason::kNone:
      return absl::OkStatus();
    case Reason::kCancelled:
      return absl::CancelledError("the client went away while the device worked");
    case Reason::kDeadline:
      return RefuseFor(RejectReason::kDeadline,
                       absl::DeadlineExceededError("the deadline passed while the device worked"));
    case Reason::kDrainOver:
      return DrainOverError();
    case Reason::kRunTime:
      return RefuseFor(
          RejectReason::kRunTime,
          absl::ResourceExhaustedError(absl::StrCat(
              "the work was stopped after holding its lane for ",
              Seconds(limits_.clock() - start_ns_), " s; ", RunLimitText(limits_.run_ns_max))),
          kNeverRetry);
  }
  return absl::OkStatus();
}

}  // namespace warpcall
