#include "server/transport/failure_log.h"

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "server/transport/status.h"

namespace warpcall {
namespace {

constexpr absl::Duration kSecond = absl::Seconds(1);
constexpr int64_t kSecondNs = 1'000'000'000;

}  // namespace

bool FailureCounts::Admit(const Failure& failure, int64_t now_ns) {
  const int code = static_cast<int>(failure.code);
  Kind& kind =
      kinds_[static_cast<size_t>(code * kRejectReasonCount + static_cast<int>(failure.reason))];
  if (kind.left_out == 0 && now_ns - kind.begin_ns >= kSecondNs) kind.lines = 0;
  if (kind.lines == 0) kind.begin_ns = now_ns;
  kind.level = failure.level;
  const int lines_max = failure.reason == RejectReason::kNone ? kFaultLines : kRefusalLines;
  if (kind.lines < lines_max) {
    ++kind.lines;
    return true;
  }
  ++kind.left_out;
  ++left_out_;
  return false;
}

std::vector<FailureCounts::LeftOut> FailureCounts::Take(int64_t now_ns) {
  std::vector<LeftOut> taken;
  for (size_t i = 0; i < kinds_.size(); ++i) {
    Kind& kind = kinds_[i];
    if (kind.left_out == 0 || now_ns - kind.begin_ns < kSecondNs) continue;
    const Failure failure = {static_cast<absl::StatusCode>(i / kRejectReasonCount),
                             static_cast<RejectReason>(i % kRejectReasonCount), kind.level};
    taken.push_back({failure, kind.left_out});
    left_out_ -= kind.left_out;
    kind = {};
  }
  return taken;
}

FailureLog::~FailureLog() {
  timer_.Stop();
  Flush();
}

void FailureLog::Flush() { Report(kNoDeadline); }

bool FailureLog::Admit(const Failure& failure) {
  const int64_t now_ns = MonotonicNs();
  absl::MutexLock lock(&mutex_);
  const bool was_empty = counts_.empty();
  const bool admitted = counts_.Admit(failure, now_ns);
  // When the second of the first that was left out is over, at the latest.
  if (was_empty && !counts_.empty()) timer_.Start(kSecond);
  return admitted;
}

void FailureLog::Report(int64_t now_ns) {
  std::vector<FailureCounts::LeftOut> taken;
  {
    absl::MutexLock lock(&mutex_);
    taken = counts_.Take(now_ns);
    if (!counts_.empty()) timer_.Start(kSecond);
  }
  for (const auto& [failure, count] : taken) {
    const std::string reason = RejectReasonName(failure.reason);
    const std::string message =
        reason.empty() ? absl::StrCat(count, " requests more failed: ", CodeName(failure.code))
                       : absl::StrCat("refused ", count, " requests more: ", reason);
    Log(failure.level, message,
        {{"code", CodeName(failure.code)}, {"reason", reason}, {"count", count}});
  }
}

}  // namespace warpcall
