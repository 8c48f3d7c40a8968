// warpcall top: the state of a server, live in a terminal or once as text or JSON.
#include <poll.h>
#include <unistd.h>

#include <csignal>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "client/cli/common/command.h"
#include "client/cli/common/interrupt.h"
#include "client/cli/common/output.h"
#include "client/cli/common/screen.h"
#include "client/cli/top/metrics_port.h"
#include "client/cli/top/terminal.h"
#include "client/cli/top/view.h"
#include "proto/common/printable.h"
#include "proto/common/status_macros.h"

namespace warpcall::cli {
namespace {

constexpr absl::Duration kAnswerTimeout = absl::Seconds(5);
constexpr double kIntervalSecondsMin = 0.1;
constexpr double kIntervalSecondsMax = 3600;
constexpr int kSignalStatus = 128;  // plus the signal's number, as shells say it

constexpr char kFooter[] =
    R"(Keys: q quits, s and the arrows choose the column to sort by, / filters kernels
by name, space pauses. p50 and p99 are the server's estimates from histograms
whose buckets double.
If stdout is not a terminal, top prints one snapshot, as with --once. --json
also prints one, in the format of the server's /status.json.
Exit status: 0 success, 1 no answer, 2 usage error, 130 Ctrl-C.)";

struct TopOptions {
  explicit TopOptions(const Arguments& arguments) {
    arguments
        .Add("--metrics", &metrics,
             "Address of the server's metrics port (its --metrics_listen), host or host:port; "
             "default: port 9470 of --server's host")
        .TypeName("HOST:PORT");
    arguments.AddFlag("--once", &once, "Print one snapshot and exit");
    arguments.Add("--interval", &interval_seconds, "Seconds between updates")
        .Between(kIntervalSecondsMin, kIntervalSecondsMax)
        .ShowDefault();
    arguments.SetFooter(kFooter);
  }
  TopOptions(const TopOptions&) = delete;
  TopOptions& operator=(const TopOptions&) = delete;

  std::string metrics;
  bool once = false;
  double interval_seconds = 2;
};

absl::StatusOr<TopStatus> ReadTopStatus(const MetricsPort& port, int cancel) {
  ASSIGN_OR_RETURN(const nlohmann::json value, port.ReadStatus(kAnswerTimeout, cancel));
  return port.ToTopStatus(value);
}

// Asks the server again and again on a thread of its own, so that keys never wait for it.
class Watcher {
 public:
  struct News {
    std::optional<TopStatus> status;  // the last one that came
    absl::Time answered;              // when
    absl::Status error;               // of the last question
  };

  Watcher(const MetricsPort& port, absl::Duration interval)
      : port_(port), interval_(interval), thread_([this] { Run(); }) {}
  ~Watcher() {
    stop_.Set();
    thread_.join();
  }

  // Set once there are news.
  const Event& event() const { return has_news_; }
  News Last() const {
    const absl::MutexLock lock(&mutex_);
    return news_;
  }

 private:
  void Run() {
    pollfd stop = {stop_.descriptor(), POLLIN, 0};
    const int pause_ms = static_cast<int>(absl::ToInt64Milliseconds(interval_));
    do {
      absl::StatusOr<TopStatus> status = ReadTopStatus(port_, stop_.descriptor());
      const absl::MutexLock lock(&mutex_);
      news_.error = status.status();
      if (status.ok()) {
        news_.status = *std::move(status);
        news_.answered = absl::Now();
      }
      has_news_.Set();
    } while (poll(&stop, 1, pause_ms) <= 0);
  }

  const MetricsPort& port_;
  const absl::Duration interval_;
  const Event has_news_;
  const Event stop_;
  mutable absl::Mutex mutex_;
  News news_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;  // last: runs on all of the above
};

// Returns false for a key that ends the program.
bool Obey(int key, TopView* view) {
  if (view->is_typing) {
    if (key == kEscape) view->filter.clear();
    if (key == kEscape || key == kEnter) {
      view->is_typing = false;
    } else if (key == kBackspace) {
      if (!view->filter.empty()) view->filter.pop_back();
    } else if (key >= ' ' && key < kBackspace) {
      view->filter.push_back(static_cast<char>(key));
    }
    return true;
  }
  const size_t columns = TopColumns();
  if (key == 's' || key == kRight) view->sort_column = (view->sort_column + 1) % columns;
  if (key == kLeft) view->sort_column = (view->sort_column + columns - 1) % columns;
  if (key == ' ') view->is_paused = !view->is_paused;
  if (key == '/') view->is_typing = true;
  if (key == kEscape) view->filter.clear();
  return key != 'q';
}

std::string LiveText(const Watcher::News& news, const TopView& view, const MetricsPort& port) {
  const Screen screen = FindScreen(STDOUT_FILENO);
  std::string text;
  if (!news.error.ok()) {
    const std::string since =
        news.status.has_value()
            ? absl::StrFormat("; last answer %.0f s ago",
                              absl::ToDoubleSeconds(absl::Now() - news.answered))
            : "";
    for (const std::string& line :
         WrapText(Printable(absl::StrCat(news.error.message(), "; trying again", since)),
                  screen.columns))
      absl::StrAppend(&text, Emphasised(line, Emphasis::kError, screen), "\n");
    absl::StrAppend(&text, "\n");
  }
  if (news.status.has_value()) return absl::StrCat(text, TopText(*news.status, view, screen));
  return text.empty() ? absl::StrCat("asking ", Printable(port.address()), " ...\n") : text;
}

int RunLive(const MetricsPort& port, absl::Duration interval) {
  const Event ended;
  const Interrupt interrupt([&ended](int) { ended.Set(); });
  Watcher watcher(port, interval);
  FullScreen screen;
  TopView view;
  Watcher::News shown;
  for (bool goes_on = true; goes_on;) {
    if (!view.is_paused) shown = watcher.Last();
    screen.Show(LiveText(shown, view, port), TopKeys(view));
    pollfd polled[] = {{screen.keys(), POLLIN, 0},
                       {watcher.event().descriptor(), POLLIN, 0},
                       {screen.resized().descriptor(), POLLIN, 0},
                       {ended.descriptor(), POLLIN, 0}};
    if (poll(polled, std::size(polled), -1) < 0) continue;
    if (polled[1].revents != 0) watcher.event().Clear();
    if (polled[2].revents != 0) screen.resized().Clear();
    if (polled[3].revents != 0) break;
    std::vector<int> pressed;
    if (polled[0].revents != 0) goes_on = screen.ReadKeys(&pressed);
    for (const int key : pressed) goes_on = goes_on && Obey(key, &view);
  }
  return interrupt.signal() == 0 ? kExitOk : kSignalStatus + interrupt.signal();
}

// The host of HOST:PORT; of other addresses, such as unix:/path, this machine.
std::string HostOf(const std::string& server) {
  const size_t colon = server.rfind(':');
  const bool is_host =
      colon != std::string::npos && server.find_first_of("/,") == std::string::npos;
  return is_host ? server.substr(0, colon) : "127.0.0.1";
}

int RunTop(const Globals& globals, const TopOptions& options) {
  const absl::StatusOr<MetricsPort> port =
      MetricsPort::Find(options.metrics.empty() ? HostOf(globals.server) : options.metrics);
  if (!port.ok())
    return absl::IsInvalidArgument(port.status()) ? UsageError(port.status())
                                                  : Refused(port.status());
  if (!options.once && !globals.json && isatty(STDOUT_FILENO) != 0)
    return RunLive(*port, absl::Seconds(options.interval_seconds));
  const absl::StatusOr<nlohmann::json> value = port->ReadStatus(kAnswerTimeout);
  if (!value.ok()) return Refused(value.status());
  if (globals.json) {
    PrintJson(*value);
    return kExitOk;
  }
  const absl::StatusOr<TopStatus> status = port->ToTopStatus(*value);
  if (!status.ok()) return Refused(status.status());
  PrintText(TopText(*status, TopView(), OutScreen()));
  return kExitOk;
}

}  // namespace

Command AddTopCommand(const Arguments& root, const Globals& globals) {
  Command command = MakeCommand<TopOptions>(
      root.AddSubcommand("top", "Show a server's devices, kernels and latencies, live"), globals,
      RunTop);
  command.asks_server = false;
  return command;
}

}  // namespace warpcall::cli
