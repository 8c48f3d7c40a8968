// A load run: workers that send a mix of requests, each over a connection of its own.
//
// Closed loop: every worker always has one request in flight. Open loop: requests arrive by a plan
// that knows nothing of the server; the worker that is free next takes the next arrival, waits for
// its time and sends it, at once when the time has passed. As latency counts from the planned time,
// a server that stalls is charged for all requests that should have come meanwhile, not only for
// those that it kept waiting (no "coordinated omission").
//
// In both a worker whose request was refused for now leaves the server alone as it asks, and
// without advice for pauses that grow (client::Backoff): a server that drains, or is gone, gets
// some requests a second from each worker instead of all that fit into one.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "client/cli/load/calls.h"
#include "client/cli/load/plan.h"
#include "client/cli/load/stats.h"
#include "warpcall/client.h"

namespace warpcall::cli {

struct LoadOptions {
  std::string server;
  client::ClientOptions client;
  int connections = 1;  // as `client` has them, where it can have several
  int workers = 1;
  double rate_per_second = 0;  // above 0: an open loop
  Arrivals arrivals = Arrivals::kPoisson;
  int64_t warmup_ns = 0;
  int64_t duration_ns = 0;  // counted time; unused with `requests`
  int64_t requests = 0;     // above 0: number of counted requests
  uint64_t seed = 0;
  bool check = false;  // CheckAnswer
};

struct LoadResult {
  explicit LoadResult(size_t entry_count) : entries(entry_count) {}

  std::vector<LoadStats> entries;
  LoadStats all;
  // Time from the warm-up's end to the end of the run or the last answer, whichever is later.
  int64_t elapsed_ns = 0;
  int64_t warmup_requests = 0;
  int64_t warmup_failed = 0;
  // Arrivals of an open loop, among those counted: sent after their time because no worker was
  // free, and not sent before the end of the run for that reason.
  int64_t late = 0;
  int64_t unsent = 0;
  // After refusals of requests that were counted.
  int64_t pauses = 0;
  int64_t paused_ns = 0;
};

class LoadRun {
 public:
  // Starts the workers. `entries` outlive the run. `on_done` is called once, by a worker, when no
  // request is left.
  LoadRun(const LoadOptions& options, const std::vector<LoadEntryCalls>& entries,
          std::function<void()> on_done);
  // Stops, and waits for the requests in flight.
  ~LoadRun();

  // For one thread. No further request begins; those in flight go on.
  void Stop();
  bool done() const { return running_.load() == 0; }
  // True while requests are sent uncounted.
  bool warming_up() const;

  // Adds the latencies counted so far; may be called during the run.
  void AddLatencies(LatencyHistogram* latencies) const;
  int64_t failed() const;

  // Waits for the workers. Once.
  std::unique_ptr<LoadResult> Finish();

 private:
  struct Worker;
  struct Ticket {
    Arrival arrival;
    bool counted;
  };

  void Work(Worker* worker);
  void ClosedLoop(Worker* worker);
  void OpenLoop(Worker* worker);
  void Send(Worker* worker, size_t entry, std::optional<int64_t> planned_ns, bool counted);
  // Pauses as the answer advises, but not past the end of the run.
  void Pause(Worker* worker, const absl::Status& answer, bool counted);
  // The next arrival before the end of the run.
  std::optional<Ticket> TakeArrival();
  // True while fewer requests have begun than were asked for.
  bool RequestsLeft();
  // Or until the run is stopped.
  void AwaitTime(int64_t time_ns) const;
  void Join();

  const LoadOptions options_;
  const std::vector<LoadEntryCalls>& entries_;
  const std::function<void()> on_done_;
  absl::Notification started_;
  absl::Notification stopped_;
  // Readings of the steady clock. The first two are set before started_.
  int64_t start_ns_ = 0;
  int64_t counted_from_ns_ = 0;
  std::atomic<int64_t> end_ns_;         // when the last request may begin
  std::atomic<int64_t> requests_left_;  // closed loop only
  std::atomic<int> running_;

  absl::Mutex plan_mutex_;
  ArrivalPlan plan_ ABSL_GUARDED_BY(plan_mutex_);     // open loop only
  int64_t planned_ ABSL_GUARDED_BY(plan_mutex_) = 0;  // counted arrivals so far

  std::vector<std::unique_ptr<Worker>> workers_;
  std::vector<std::thread> threads_;
};

}  // namespace warpcall::cli
