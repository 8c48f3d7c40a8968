#include "client/cli/load/watch.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "client/cli/common/output.h"
#include "client/cli/common/table.h"

namespace warpcall::cli {
namespace {

// All that a signal handler can reach. It runs in whichever thread the system chooses.
std::atomic<int> signal_event{-1};
std::atomic<bool> signal_came{false};
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<bool>::is_always_lock_free);

void WakeUp(int event) {
  const uint64_t one = 1;
  // Fails only when the counter is full, and then its reader is awake anyway.
  [[maybe_unused]] const ssize_t written = write(event, &one, sizeof(one));
}

// `action` of SIGINT and SIGTERM, but where the program was started with them ignored.
void SetHandlers(void (*action)(int)) {
  for (const int signal : {SIGINT, SIGTERM}) {
    struct sigaction now = {};
    sigaction(signal, nullptr, &now);
    if (now.sa_handler == SIG_IGN) continue;
    struct sigaction next = {};
    next.sa_handler = action;
    next.sa_flags = SA_RESTART;
    sigaction(signal, &next, nullptr);
  }
}

void OnSignal(int) {
  const int saved_errno = errno;
  SetHandlers(SIG_DFL);  // the next one ends the program
  signal_came = true;
  WakeUp(signal_event);
  errno = saved_errno;
}

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

LoadWakeup::LoadWakeup() : event_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  signal_came = false;
  signal_event = event_;
  SetHandlers(OnSignal);
}

LoadWakeup::~LoadWakeup() {
  SetHandlers(SIG_DFL);
  signal_event = -1;
  close(event_);
}

void LoadWakeup::Notify() { WakeUp(event_); }

void LoadWakeup::Await(int64_t timeout_ms) {
  pollfd wait = {.fd = event_, .events = POLLIN, .revents = 0};
  if (poll(&wait, 1, static_cast<int>(timeout_ms)) <= 0) return;
  uint64_t count;
  [[maybe_unused]] const ssize_t bytes = read(event_, &count, sizeof(count));
}

bool LoadWakeup::interrupted() const { return signal_came; }

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
