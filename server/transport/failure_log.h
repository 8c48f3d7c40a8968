// Which of the lines about requests that failed are written: a client in a loop, or many at once
// while the server drains, would fill the disk with one sentence.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "server/engine/clock.h"
#include "server/engine/metrics_sink.h"
#include "server/log/log.h"
#include "server/system/housekeeper.h"

namespace warpcall {

// The kind of a failed request; lines of one kind count together, for all callers.
struct Failure {
  absl::StatusCode code = absl::StatusCode::kInternal;
  RejectReason reason = RejectReason::kNone;
  LogLevel level = LogLevel::kError;
};

// Counts by kind within a second that begins with a kind's first line. Not thread-safe.
class FailureCounts {
 public:
  // Lines of a second: one where a limit or the server's state refuses, as the next would say the
  // same; more where each request has a fault of its own.
  static constexpr int kRefusalLines = 1;
  static constexpr int kFaultLines = 20;

  // Returns true if the failure gets a line; otherwise counts it.
  bool Admit(const Failure& failure, int64_t now_ns);

  struct LeftOut {
    Failure failure;
    int64_t count;
  };
  // Takes the counts of failures without a line, of kinds whose second is over; kNoDeadline: all.
  std::vector<LeftOut> Take(int64_t now_ns);
  bool empty() const { return left_out_ == 0; }

 private:
  static constexpr int kCodes = static_cast<int>(absl::StatusCode::kUnauthenticated) + 1;

  struct Kind {
    int64_t begin_ns = 0;
    int lines = 0;
    int64_t left_out = 0;
    LogLevel level = LogLevel::kError;
  };
  std::array<Kind, kCodes * kRejectReasonCount> kinds_{};
  int64_t left_out_ = 0;  // over all kinds
};

// Thread-safe.
class FailureLog {
 public:
  FailureLog() = default;
  // Logs the counts that were not logged yet.
  ~FailureLog();
  FailureLog(const FailureLog&) = delete;
  FailureLog& operator=(const FailureLog&) = delete;

  // Returns true if the caller may write its line. If not, a line within some two seconds gives the
  // number of lines left out.
  bool Admit(const Failure& failure);

  // Logs the counts that were not logged yet, at once.
  void Flush() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  // Logs the counts of kinds whose second is over; kNoDeadline: of all kinds.
  void Report(int64_t now_ns) ABSL_LOCKS_EXCLUDED(mutex_);

  absl::Mutex mutex_;
  FailureCounts counts_ ABSL_GUARDED_BY(mutex_);
  Timer timer_{"failures", [this] { Report(MonotonicNs()); }};  // last: works on all of the above
};

}  // namespace warpcall
