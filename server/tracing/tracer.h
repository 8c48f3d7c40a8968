// Decides which requests are traced, and keeps their records until they are sent.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "proto/common/steady_wait.h"
#include "server/engine/metrics_sink.h"

namespace warpcall::tracing {

using SpanId = std::array<uint8_t, 8>;  // not all 0

// The position of a client's request in the client's own trace.
struct Parent {
  TraceId trace_id;  // not all 0
  SpanId span_id;
  bool sampled = false;  // the client records the trace
};

// The span of one request.
struct Span {
  TraceId trace_id;
  SpanId span_id;
  std::optional<SpanId> parent_id;
};

// A request, or one window of a stream, as it came to its end.
struct Record {
  Span span;
  absl::string_view method = {};  // "Execute", ...; outlives all
  bool is_window = false;         // a window of the request with this span
  std::string request_id = {};
  std::string error = {};  // the status's
  int64_t begin_ns = 0;    // start of the request, by MonotonicNs; `trace.total_ns` before its end
  RequestTrace trace = {};
};

// Numbers of requests' spans by outcome, since the start.
struct Counts {
  uint64_t sent = 0;
  uint64_t dropped = 0;  // there was no room
  uint64_t failed = 0;   // the collector did not accept them
};

// Decides, and keeps records until Take. Thread-safe.
class Tracer {
 public:
  // Keeps at most `records_max` records; drops and counts more. Traces the fraction `ratio`, 0 to
  // 1, of the requests that belong to no client's trace.
  Tracer(double ratio, size_t records_max);

  // The span of a request that begins; none where it is not to be traced. A client's decision is
  // followed.
  std::optional<Span> Begin(const std::optional<Parent>& parent);

  // Waits for the thread that takes the records only while they change hands.
  void Add(Record record);

  // Waits for `enough` records, for `timeout`, or for Stop, and returns all records. The caller
  // owns them, and reports their outcome by CountSent or CountFailed.
  std::vector<Record> Take(size_t enough, absl::Duration timeout);
  // Ends the waits of Take, also of later calls.
  void Stop();
  bool stopped() const;
  // Returns true if Stop was called before `timeout` was over.
  bool AwaitStop(absl::Duration timeout);

  void CountSent(size_t records) { sent_.fetch_add(records); }
  void CountFailed(size_t records) { failed_.fetch_add(records); }
  Counts counts() const { return {sent_.load(), dropped_.load(), failed_.load()}; }

 private:
  const double ratio_;
  const size_t records_max_;
  std::atomic<uint64_t> sent_{0};
  std::atomic<uint64_t> dropped_{0};
  std::atomic<uint64_t> failed_{0};
  mutable absl::Mutex mutex_;
  SteadyCondVar changed_;  // there are as many records as awaited, or it is stopped
  size_t awaited_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<Record> records_ ABSL_GUARDED_BY(mutex_);
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
};

// Returns an id for a span below a request's: random, as W3C Trace Context requires.
SpanId NewSpanId();

// Reads `digits`, hexadecimal ones in lower case, two for each byte of `id`.
bool FromHex(absl::string_view digits, TraceId* id);
bool FromHex(absl::string_view digits, SpanId* id);

}  // namespace warpcall::tracing
