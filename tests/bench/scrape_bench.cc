// What scraping /metrics costs the requests beside it: identity of 4 KiB from several connections
// through the client library, in windows with and without scrapes by turns. Ends with status 1 when
// a scrape or a request fails. The scraper and the clients share the machine with the server, so
// what they cost is in the figures, too.
//
//   scrape_bench [WINDOW_SECONDS [PAIRS]]       default 1 and 10
#include <httplib.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "kernels/common/status_macros.h"
#include "tests/bench/transport_caller.h"
#include "tests/bench/transport_server.h"
#include "tests/bench/transport_stats.h"

namespace warpcall::bench {
namespace {

constexpr int kConnections = 4;
constexpr size_t kBytes = 4096;
constexpr int kScrapesMin = 1000;
constexpr int kIdleScrapes = 300;
constexpr double kRatioMin = 0.97;  // of the requests a second without scrapes
constexpr absl::Duration kNoPause = absl::ZeroDuration();

// Closed loops of requests for as long as it lives.
class Load {
 public:
  static absl::StatusOr<std::unique_ptr<Load>> Start(const BenchServer& server) {
    std::unique_ptr<Load> load(new Load());
    for (int i = 0; i < kConnections; ++i) {
      ASSIGN_OR_RETURN(std::unique_ptr<Caller> caller,
                       NewCaller({.contender = {ContenderKind::kLibrary, "identity"},
                                  .address = server.address(Transport::kTcp),
                                  .data = load->data_}));
      RETURN_IF_ERROR(caller->Verify());
      load->callers_.push_back(std::move(caller));
    }
    for (const auto& caller : load->callers_)
      load->threads_.emplace_back([&load = *load, &caller = *caller] {
        while (!load.stop_) ++(caller.Call().ok() ? load.done_ : load.failed_);
      });
    return load;
  }
  ~Load() {
    stop_ = true;
    for (std::thread& thread : threads_) thread.join();
  }

  int64_t done() const { return done_; }
  int64_t failed() const { return failed_; }

 private:
  Load() = default;

  const std::vector<char> data_ = RandomFloats(kBytes);
  std::atomic<bool> stop_{false};
  std::atomic<int64_t> done_{0};
  std::atomic<int64_t> failed_{0};
  std::vector<std::unique_ptr<Caller>> callers_;
  std::vector<std::thread> threads_;
};

// Scrapes as Prometheus does, with `pause` between starts (or none), for as long as it lives.
class Scraper {
 public:
  struct Counts {
    std::atomic<int64_t> done{0};
    std::atomic<int64_t> failed{0};
    std::atomic<int64_t> bytes{0};  // of the last one
  };

  Scraper(const std::string& address, absl::Duration pause, Counts* counts)
      : thread_([this, address, pause, counts] { Run(address, pause, counts); }) {}
  ~Scraper() {
    stop_ = true;
    thread_.join();
  }

 private:
  void Run(const std::string& address, absl::Duration pause, Counts* counts) {
    for (absl::Time next = absl::Now(); !stop_; next += pause) {
      absl::SleepFor(next - absl::Now());
      httplib::Client http(absl::StrCat("http://", address));
      const httplib::Result reply = http.Get("/metrics", {{"Accept-Encoding", "gzip"}});
      // The last family: a body that was cut short is a failure.
      const bool whole =
          reply && reply->status == 200 && absl::StrContains(reply->body, "\nprocess_threads ");
      ++(whole ? counts->done : counts->failed);
      if (whole) counts->bytes = static_cast<int64_t>(reply->body.size());
    }
  }

  std::atomic<bool> stop_{false};
  std::thread thread_;
};

double RequestsPerSecond(const Load& load, absl::Duration window) {
  const absl::Time start = absl::Now();
  const int64_t before = load.done();
  absl::SleepFor(window);
  return static_cast<double>(load.done() - before) / absl::ToDoubleSeconds(absl::Now() - start);
}

struct Plan {
  absl::Duration window;
  int pairs;
};

struct Beside {
  std::string metrics_address;
  absl::Duration pause;
};

// Which of a pair's windows comes first changes from pair to pair.
void Compare(const Plan& plan, const Load& load, const Beside& scrapes, Scraper::Counts* counts) {
  std::vector<double> ratios, without, with;
  const int64_t scrapes_before = counts->done;
  for (int pair = 0; pair < plan.pairs; ++pair) {
    for (const bool scrape : {pair % 2 == 1, pair % 2 == 0}) {
      std::unique_ptr<Scraper> scraper;
      if (scrape)
        scraper = std::make_unique<Scraper>(scrapes.metrics_address, scrapes.pause, counts);
      (scrape ? with : without).push_back(RequestsPerSecond(load, plan.window));
    }
    ratios.push_back(with.back() / without.back());
  }
  for (std::vector<double>* figures : {&ratios, &without, &with})
    std::sort(figures->begin(), figures->end());
  const double ratio = Percentile(ratios, 0.5);
  const double scrapes_per_second = static_cast<double>(counts->done - scrapes_before) /
                                    (absl::ToDoubleSeconds(plan.window) * plan.pairs);
  std::printf("| %s | %.0f | %.0f | %.0f | %.3f | %.3f to %.3f | %s |\n",
              scrapes.pause == kNoPause ? "back to back" : "10 a second", scrapes_per_second,
              Percentile(without, 0.5), Percentile(with, 0.5), ratio, ratios.front(), ratios.back(),
              ratio >= kRatioMin ? "yes" : "NO");
  std::fflush(stdout);
}

// What a scrape costs an idle server, in CPU time: other work on the machine hardly changes it.
double ServerMsPerScrape(const BenchServer& server, Scraper::Counts* counts) {
  const double before_seconds = server.CpuSeconds();
  const int64_t before = counts->done;
  {
    const Scraper scraper(server.metrics_address(), kNoPause, counts);
    while (counts->done - before < kIdleScrapes && counts->failed == 0)
      absl::SleepFor(absl::Milliseconds(10));
  }
  return 1e3 * (server.CpuSeconds() - before_seconds) / static_cast<double>(counts->done - before);
}

absl::Status Measure(const Plan& plan) {
  const SocketFolder folder;
  ASSIGN_OR_RETURN(const std::unique_ptr<BenchServer> server,
                   StartWarpcalld(folder, {DefaultWarpcalld(), {"--devices=cpu"}}));
  std::unique_ptr<Load> load;
  ASSIGN_OR_RETURN(load, Load::Start(*server));
  RequestsPerSecond(*load, plan.window);  // warm-up
  std::printf(
      "| scrapes | a second | requests/s without | with | ratio, median of %d | from, to | at "
      "least "
      "%.2f |\n|---|---|---|---|---|---|---|\n",
      plan.pairs, kRatioMin);
  Scraper::Counts counts;
  for (const absl::Duration pause : {absl::Milliseconds(100), kNoPause})
    Compare(plan, *load, {server->metrics_address(), pause}, &counts);
  {
    const Scraper scraper(server->metrics_address(), kNoPause, &counts);
    while (counts.done + counts.failed < kScrapesMin) RequestsPerSecond(*load, plan.window);
  }
  std::printf("\n%lld scrapes of %lld bytes, %lld failed; %lld requests, %lld failed\n",
              static_cast<long long>(counts.done + counts.failed),
              static_cast<long long>(counts.bytes), static_cast<long long>(counts.failed),
              static_cast<long long>(load->done() + load->failed()),
              static_cast<long long>(load->failed()));
  const int64_t failed_requests = load->failed();
  load.reset();
  std::printf("%.2f ms of the server's CPU a scrape\n", ServerMsPerScrape(*server, &counts));
  RETURN_IF_ERROR(server->Stop());
  const int64_t failed = failed_requests + counts.failed;
  return failed == 0 ? absl::OkStatus()
                     : absl::InternalError(absl::StrCat(failed, " scrapes or requests failed"));
}

int Main(int argc, char** argv) {
  BecomeServerIfAsked(argc, argv);
  const Plan plan = {absl::Seconds(argc > 1 ? std::atof(argv[1]) : 1),
                     argc > 2 ? std::max(1, std::atoi(argv[2])) : 10};
  const absl::Status status = Measure(plan);
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}

}  // namespace
}  // namespace warpcall::bench

int main(int argc, char** argv) { return warpcall::bench::Main(argc, argv); }
