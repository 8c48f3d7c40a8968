#include "client/cli/load/watch.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "client/cli/common/output.h"
#include "client/cli/common/table.h"
#include "client/cli/load/latency_histogram.h"

namespace warpcall::cli {
namespace {

// The difference between two looks at a run.
class ProgressLine {
 public:
  explicit ProgressLine(const LoadRun* run) : run_(run) {}

  void Print(absl::Duration elapsed) {
    auto latencies = std::make_unique<LatencyHistogram>();
    run_->AddLatencies(latencies.get());
    const int64_t failed = run_->failed();
    auto since = std::make_unique<LatencyHistogram>();
    since->Merge(*latencies);
    since->Subtract(*last_latencies_);
    const double seconds = absl::ToDoubleSeconds(elapsed - last_elapsed_);
    const double answers = static_cast<double>(since->Count() + failed - last_failed_);
    const std::string line =
        run_->warming_up()
            ? std::string("warming up")
            : absl::StrFormat("%.0f requests/s, p50 %s, p99 %s, %d errors", answers / seconds,
                              HumanTime(static_cast<double>(since->Percentile(0.5))),
                              HumanTime(static_cast<double>(since->Percentile(0.99))),
                              failed - last_failed_);
    PrintNote(absl::StrFormat("load: %.0f s: %s", absl::ToDoubleSeconds(elapsed), line));
    last_latencies_ = std::move(latencies);
    last_failed_ = failed;
    last_elapsed_ = elapsed;
  }

 private:
  const LoadRun* const run_;
  std::unique_ptr<LatencyHistogram> last_latencies_ = std::make_unique<LatencyHistogram>();
  int64_t last_failed_ = 0;
  absl::Duration last_elapsed_;
};

}  // namespace

void LoadWakeup::Notify() {
  const absl::MutexLock lock(&mutex_);
  notified_ = true;
}

void LoadWakeup::Await(int64_t timeout_ms) {
  const absl::MutexLock lock(&mutex_);
  mutex_.AwaitWithTimeout(absl::Condition(&notified_), absl::Milliseconds(timeout_ms));
  notified_ = false;
}

void WatchLoad(LoadRun* run, LoadWakeup* wakeup) {
  const absl::Time start = absl::Now();
  ProgressLine progress(run);
  bool stopping = false;
  for (absl::Time next = start + absl::Seconds(1); !run->done();) {
    wakeup->Await(std::max<int64_t>(0, absl::ToInt64Milliseconds(next - absl::Now()) + 1));
    if (wakeup->interrupted() && !stopping) {
      stopping = true;
      run->Stop();
      PrintNote("load: interrupted; waiting for the requests in flight");
    }
    if (absl::Now() < next || run->done()) continue;
    progress.Print(absl::Now() - start);
    next += absl::Seconds(1);
  }
}

}  // namespace warpcall::cli
