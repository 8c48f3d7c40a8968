#include "client/cli/load/run.h"

#include <sys/prctl.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <utility>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "warpcall/client.h"

namespace warpcall::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
// Time between starting the workers and the first request, by which every worker is awake.
constexpr int64_t kHeadStartNs = 5'000'000;
// An interruptible wait may wake up late, so the last part of each wait is not interruptible.
constexpr int64_t kExactWaitNs = 20'000'000;

int64_t Now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch())
      .count();
}

std::vector<double> Weights(const std::vector<LoadEntryCalls>& entries) {
  std::vector<double> weights;
  for (const LoadEntryCalls& entry : entries) weights.push_back(entry.entry.weight);
  return weights;
}

}  // namespace

struct LoadRun::Worker {
  Worker(const LoadOptions& options, const std::vector<LoadEntryCalls>& entries, uint64_t seed)
      : client(options.server, options.client),
        backoff(options.client.retry),
        chooser(Weights(entries), seed),
        next_call(entries.size()),
        stats(entries.size()) {}

  client::Client client;
  client::Backoff backoff;        // for refusals without a delay
  EntryChooser chooser;           // closed loop only
  std::vector<size_t> next_call;  // by entry
  std::vector<LoadStats> stats;   // by entry
  int64_t last_done_ns = 0;       // counted requests only
  int64_t warmup_requests = 0;
  int64_t warmup_failed = 0;
  int64_t late = 0;
  int64_t unsent = 0;
  int64_t pauses = 0;
  int64_t paused_ns = 0;
};

LoadRun::LoadRun(const LoadOptions& options, const std::vector<LoadEntryCalls>& entries,
                 std::function<void()> on_done)
    : options_(options),
      entries_(entries),
      on_done_(std::move(on_done)),
      end_ns_(kNever),
      requests_left_(options.requests > 0 ? options.requests : kNever),
      running_(options.workers),
      plan_({.rate_per_second = options.rate_per_second,
             .arrivals = options.arrivals,
             .weights = Weights(entries),
             .seed = options.seed}) {
  for (int i = 0; i < options.workers; ++i) {
    const uint64_t seed = options.seed + static_cast<uint64_t>(i);
    workers_.push_back(std::make_unique<Worker>(options_, entries_, seed));
  }
  for (const auto& worker : workers_) threads_.emplace_back([this, w = worker.get()] { Work(w); });
  start_ns_ = Now() + kHeadStartNs;
  counted_from_ns_ = start_ns_ + options_.warmup_ns;
  if (options_.requests == 0) end_ns_ = counted_from_ns_ + options_.duration_ns;
  started_.Notify();
}

LoadRun::~LoadRun() {
  Stop();
  Join();
}

void LoadRun::Stop() {
  if (stopped_.HasBeenNotified()) return;
  end_ns_ = std::min(end_ns_.load(), Now());
  stopped_.Notify();
}

bool LoadRun::warming_up() const { return Now() < counted_from_ns_; }

void LoadRun::AddLatencies(LatencyHistogram* latencies) const {
  for (const auto& worker : workers_)
    for (const LoadStats& stats : worker->stats) latencies->Merge(stats.latency());
}

int64_t LoadRun::failed() const {
  int64_t failed = 0;
  for (const auto& worker : workers_)
    for (const LoadStats& stats : worker->stats) failed += stats.Failed();
  return failed;
}

void LoadRun::Join() {
  for (std::thread& thread : threads_)
    if (thread.joinable()) thread.join();
}

std::unique_ptr<LoadResult> LoadRun::Finish() {
  Join();
  auto result = std::make_unique<LoadResult>(entries_.size());
  int64_t last_done_ns = 0;
  for (const auto& worker : workers_) {
    for (size_t i = 0; i < entries_.size(); ++i) {
      result->entries[i].Merge(worker->stats[i]);
      result->all.Merge(worker->stats[i]);
    }
    result->warmup_requests += worker->warmup_requests;
    result->warmup_failed += worker->warmup_failed;
    result->late += worker->late;
    result->unsent += worker->unsent;
    result->pauses += worker->pauses;
    result->paused_ns += worker->paused_ns;
    last_done_ns = std::max(last_done_ns, worker->last_done_ns);
  }
  if (options_.rate_per_second > 0)  // arrivals that no worker took
    while (const auto ticket = TakeArrival()) result->unsent += ticket->counted;
  if (end_ns_.load() != kNever) last_done_ns = std::max(last_done_ns, end_ns_.load());
  result->elapsed_ns = std::max<int64_t>(0, last_done_ns - counted_from_ns_);
  return result;
}

void LoadRun::Work(Worker* worker) {
  // Linux wakes sleepers up to 50 us late to save power unless told otherwise.
  prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);
  started_.WaitForNotification();
  if (options_.rate_per_second > 0) {
    OpenLoop(worker);
  } else {
    ClosedLoop(worker);
  }
  if (running_.fetch_sub(1) == 1) on_done_();
}

void LoadRun::ClosedLoop(Worker* worker) {
  AwaitTime(start_ns_);
  for (int64_t now; (now = Now()) < end_ns_.load();) {
    const bool counted = now >= counted_from_ns_;
    if (counted && requests_left_.fetch_sub(1) <= 0) return;
    Send(worker, worker->chooser.Next(), std::nullopt, counted);
  }
}

void LoadRun::OpenLoop(Worker* worker) {
  while (const auto ticket = TakeArrival()) {
    const int64_t planned_ns = start_ns_ + ticket->arrival.planned_ns;
    const int64_t now = Now();
    // Arrivals are taken in their order, so all other workers are at earlier ones or sending.
    const bool late = now > planned_ns;
    if (late && now >= end_ns_.load()) {
      worker->unsent += ticket->counted;
      return;
    }
    // Leftovers of an overloaded warm-up would only delay counted requests.
    if (!ticket->counted && now >= counted_from_ns_) continue;
    AwaitTime(planned_ns);
    if (planned_ns >= end_ns_.load()) return;  // stopped meanwhile
    worker->late += late && ticket->counted;
    Send(worker, ticket->arrival.entry, planned_ns, ticket->counted);
  }
}

std::optional<LoadRun::Ticket> LoadRun::TakeArrival() {
  absl::MutexLock lock(&plan_mutex_);
  if (options_.requests > 0 && planned_ == options_.requests) return std::nullopt;
  const Arrival arrival = plan_.Next();
  if (start_ns_ + arrival.planned_ns >= end_ns_.load()) return std::nullopt;
  const bool counted = arrival.planned_ns >= options_.warmup_ns;
  planned_ += counted;
  return Ticket{arrival, counted};
}

bool LoadRun::RequestsLeft() {
  if (options_.rate_per_second <= 0) return requests_left_.load() > 0;
  absl::MutexLock lock(&plan_mutex_);
  return options_.requests == 0 || planned_ < options_.requests;
}

void LoadRun::AwaitTime(int64_t time_ns) const {
  const int64_t early_ns = time_ns - Now() - kExactWaitNs;
  if (early_ns > 0 && stopped_.WaitForNotificationWithTimeout(absl::Nanoseconds(early_ns))) return;
  std::this_thread::sleep_until(Clock::time_point(std::chrono::nanoseconds(time_ns)));
}

void LoadRun::Send(Worker* worker, size_t entry, std::optional<int64_t> planned_ns, bool counted) {
  const std::vector<client::Call>& calls = entries_[entry].calls;
  const client::Call& call = calls[worker->next_call[entry]++ % calls.size()];
  LoadTimes times;
  times.sent_ns = Now();
  times.planned_ns = planned_ns.value_or(times.sent_ns);
  absl::StatusOr<client::Result> result = worker->client.Execute(call);
  times.done_ns = Now();
  if (options_.check && result.ok())
    if (absl::Status status = CheckAnswer(call, *result); !status.ok()) result = std::move(status);
  if (counted) {
    worker->stats[entry].Record(times, call, result);
    worker->last_done_ns = times.done_ns;
  } else {
    ++worker->warmup_requests;
    worker->warmup_failed += !result.ok();
  }
  Pause(worker, result.status(), counted);
}

void LoadRun::Pause(Worker* worker, const absl::Status& answer, bool counted) {
  if (!absl::IsUnavailable(answer) && !absl::IsResourceExhausted(answer)) {
    worker->backoff.Reset();
    return;
  }
  const std::optional<int64_t> advice_ms = client::RetryPushbackMs(answer);
  // A permanent refusal of one request says nothing about the others.
  if (advice_ms.has_value() && *advice_ms < 0) return;
  absl::Duration pause;
  if (advice_ms.has_value()) {
    worker->backoff.Reset();
    pause = std::min(absl::Milliseconds(*advice_ms), options_.client.retry.pushback_max);
  } else {
    pause = worker->backoff.Next();
  }
  if (pause <= absl::ZeroDuration() || !RequestsLeft()) return;
  const int64_t from_ns = Now();
  AwaitTime(std::min(from_ns + absl::ToInt64Nanoseconds(pause), end_ns_.load()));
  if (!counted) return;
  ++worker->pauses;
  worker->paused_ns += Now() - from_ns;
}

}  // namespace warpcall::cli
