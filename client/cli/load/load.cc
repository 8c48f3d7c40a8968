// warpcall load: many requests, and how long they took.
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "client/cli/common/catalog.h"
#include "client/cli/common/command.h"
#include "client/cli/common/interrupt.h"
#include "client/cli/common/options.h"
#include "client/cli/common/output.h"
#include "client/cli/common/progress.h"
#include "client/cli/common/table.h"
#include "client/cli/load/calls.h"
#include "client/cli/load/latency_histogram.h"
#include "client/cli/load/mix.h"
#include "client/cli/load/report.h"
#include "client/cli/load/run.h"
#include "proto/common/status_macros.h"
#include "warpcall/client.h"

namespace warpcall::cli {
namespace {

constexpr int kDefaultOpenWorkers = 64;
constexpr int kWorkersMax = 1024;
// Times entries; each pair has 190 KiB of statistics.
constexpr int kWorkersTimesEntriesMax = 4096;
constexpr int kConnectionsMax = 64;
constexpr double kRateMin = 0.001;
constexpr double kRateMax = 1e6;
constexpr double kSecondsMax = 86400;
// Timeout for listing kernels before the first request, whose own deadline may be shorter than the
// time to connect.
constexpr absl::Duration kListTimeout = absl::Seconds(20);

constexpr char kFooter[] =
    R"(MIX is a comma-separated list of entries:
  KERNEL[OPTION,OPTION,...]:SHAPES:TYPE=WEIGHT
Only KERNEL is required. Each request takes a random entry, in proportion to the
weights (default 1).
  OPTION  implementation=NAME, device=NAME or an attribute of the kernel, such
          as axis=0; in square brackets
  SHAPES  64x1024 for every input, or one shape per input with * between them
  TYPE    float32, float16 or bfloat16, or short f32, f16 or bf16
--shape, --type, --implementation, --device and --attribute are defaults for
entries without their own.
  warpcall load gelu --shape 1024 --concurrency 8
  warpcall load 'gelu:4096=80,softmax[axis=0]:64x1024:bf16=20' --rate 2000
  warpcall load matmul --shape 64x128 --shape 128x32 --requests 1000
Without --rate each worker always has one request in flight (closed loop).
With --rate requests follow a schedule, and latencies count from the scheduled
times (open loop). --deadline applies to each request.
After a temporary refusal (UNAVAILABLE, RESOURCE_EXHAUSTED) a worker pauses: as
long as the server asks, else 50 ms, doubled each time up to 2 s.
Exit status: 0 all requests were OK, 1 one failed or none was sent, 2 usage
error.)";

struct LoadCommand {
  explicit LoadCommand(const Arguments& arguments) : deadline(arguments) {
    AddMix(arguments);
    AddLoad(arguments);
    arguments.SetFooter(kFooter);
  }

  void AddMix(const Arguments& arguments) {
    const Option option =
        arguments.Add("--mix", &mix, "Kernels to call, instead of the positional MIX");
    arguments.Add("kernels", &kernels, "Kernels to call: KERNEL,KERNEL,... or a MIX, see below")
        .Excludes(option);
    arguments
        .AddRepeated("--shape", &shapes,
                     "Set the inputs' shapes: once for all inputs or once for each")
        .TypeName("SHAPE");
    arguments.Add("--type", &type, "Set the element type").IsDataType().ShowDefault();
    arguments.Add(
        "--implementation", &defaults.implementation,
        "Run this implementation (cuda) or variant (cuda:two_pass); default: server's choice");
    arguments.Add("--device", &defaults.device,
                  "Run on this device from `warpcall devices`; default: server's choice");
    arguments
        .AddRepeated("--attribute", &defaults.attributes,
                     "Set an attribute of the kernel; repeat for several")
        .TypeName("NAME=VALUE");
  }

  void AddLoad(const Arguments& arguments) {
    arguments
        .Add("--concurrency", &workers,
             absl::StrCat("Number of workers, each with its own connection; default 1, or ",
                          kDefaultOpenWorkers, " with --rate"))
        .Between(1, kWorkersMax);
    const Option rate_option = arguments.Add("--rate", &rate, "Send this many requests per second")
                                   .Between(kRateMin, kRateMax);
    arguments
        .Add("--arrivals", &arrivals,
             "Space the requests of --rate at random (poisson) or evenly (uniform)")
        .OneOf({"poisson", "uniform"})
        .Needs(rate_option)
        .ShowDefault();
    const Option duration_option =
        arguments
            .Add("--duration", &duration_seconds, "Send for this many seconds after the warm-up")
            .Between(0.001, kSecondsMax)
            .ShowDefault();
    arguments
        .Add("--requests", &requests, "Stop after this many requests instead, warm-up not counted")
        .Between(1, 1e12)
        .Excludes(duration_option);
    arguments.Add("--warmup", &warmup_seconds, "Send for this many seconds before counting")
        .Between(0, kSecondsMax)
        .ShowDefault();
    arguments
        .Add("--connections", &connections,
             "Number of connections per worker, to spread large requests over")
        .Between(1, kConnectionsMax)
        .ShowDefault();
    arguments.Add("--seed", &seed, "Seed the inputs, the choices from the mix and the arrivals")
        .ShowDefault();
    arguments.AddFlag("--retry", &retry, "Retry temporary refusals");
    arguments.AddFlag("--check", &check,
                      "Check the outputs' types and shapes, and that identity returns its input; a "
                      "wrong response counts as DATA_LOSS");
  }

  // Returns the entries of the command line, with the defaults filled in.
  absl::StatusOr<std::vector<LoadEntry>> Entries() const {
    const std::string& text = mix.empty() ? kernels : mix;
    if (text.empty()) return absl::InvalidArgumentError("kernels or --mix is required");
    LoadEntry common = defaults;
    ASSIGN_OR_RETURN(common.data_type, ParseDataType(type));
    for (const std::string& shape : shapes) {
      ASSIGN_OR_RETURN(Shapes more, ParseShapes(shape));
      common.shapes.insert(common.shapes.end(), more.begin(), more.end());
    }
    return ParseMix(text, common);
  }

  LoadOptions Options(const Globals& globals) const {
    LoadOptions options;
    options.server = globals.server;
    options.client.credentials = globals.credentials;
    options.client.timeout = deadline.duration();
    if (!retry) options.client.retry.attempts_max = 1;
    options.connections = connections;
    options.client.connections = connections;
    options.workers = workers > 0 ? workers : rate > 0 ? kDefaultOpenWorkers : 1;
    options.rate_per_second = rate;
    options.arrivals = arrivals == "poisson" ? Arrivals::kPoisson : Arrivals::kUniform;
    options.warmup_ns = absl::ToInt64Nanoseconds(absl::Seconds(warmup_seconds));
    options.duration_ns = absl::ToInt64Nanoseconds(absl::Seconds(duration_seconds));
    options.requests = requests;
    options.seed = seed;
    options.check = check;
    return options;
  }

  TimeoutOption deadline;
  std::string kernels;
  std::string mix;
  std::vector<std::string> shapes;
  std::string type = "float32";
  LoadEntry defaults;  // but for shapes and type
  int workers = 0;     // 0: the default
  int connections = 1;
  double rate = 0;
  std::string arrivals = "poisson";
  double duration_seconds = 10;
  int64_t requests = 0;
  double warmup_seconds = 1;
  uint64_t seed = 1;
  bool retry = false;
  bool check = false;
};

absl::StatusOr<std::vector<LoadEntryCalls>> Prepare(std::vector<LoadEntry> entries,
                                                    const std::vector<client::KernelInfo>& listed,
                                                    uint64_t seed) {
  const Progress progress("making inputs");
  for (LoadEntry& entry : entries) RETURN_IF_ERROR(FitToKernel(listed, &entry));
  std::vector<LoadEntryCalls> prepared;
  for (const LoadEntry& entry : entries) {
    ASSIGN_OR_RETURN(LoadEntryCalls calls, MakeCalls(entry, listed, seed + prepared.size()));
    prepared.push_back(std::move(calls));
  }
  return prepared;
}

// Status of the whole run: OK, or the lowest failure code with its count and first message.
absl::Status Outcome(const LoadStats& all) {
  if (all.Sent() == 0) return absl::FailedPreconditionError("no request was sent");
  for (int i = 0; i < LoadStats::kCodeCount; ++i) {
    const auto code = static_cast<absl::StatusCode>(i);
    if (code != absl::StatusCode::kOk && all.Count(code) > 0)
      return absl::Status(
          code, absl::StrCat(all.Failed(), " of ", all.Sent(),
                             " requests failed, the first with this code: ", all.Message(code)));
  }
  return absl::OkStatus();
}

// Wakes the thread that supervises a run, also on Ctrl-C (Interrupt). One at a time.
class LoadWakeup {
 public:
  // Thread-safe.
  void Notify();
  // Waits at most `timeout_ms` for Notify or a signal; uses up the one that ends the wait.
  void Await(int64_t timeout_ms);
  bool interrupted() const { return interrupt_.signal() != 0; }

 private:
  absl::Mutex mutex_;
  bool notified_ ABSL_GUARDED_BY(mutex_) = false;
  const Interrupt interrupt_{[this](int) { Notify(); }};  // last: its thread uses the others
};

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

void LoadWakeup::Notify() {
  const absl::MutexLock lock(&mutex_);
  notified_ = true;
}

void LoadWakeup::Await(int64_t timeout_ms) {
  const absl::MutexLock lock(&mutex_);
  mutex_.AwaitWithTimeout(absl::Condition(&notified_), absl::Milliseconds(timeout_ms));
  notified_ = false;
}

// Waits until `run`, whose on_done notifies `wakeup`, is done, and stops it when it is interrupted.
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

int Run(const Globals& globals, const LoadCommand& command) {
  auto entries = command.Entries();
  if (!entries.ok()) return UsageError(entries.status());
  const LoadOptions options = command.Options(globals);
  if (options.workers * static_cast<int>(entries->size()) > kWorkersTimesEntriesMax)
    return UsageError(absl::InvalidArgumentError(
        absl::StrCat(options.workers, " workers (--concurrency) times ", entries->size(),
                     " entries of the mix are over the limit of ", kWorkersTimesEntriesMax)));
  absl::StatusOr<std::vector<client::KernelInfo>> listed = absl::UnknownError("not called");
  {
    const Progress progress(absl::StrCat("connecting to ", globals.server));
    listed = client::Client(globals.server, options.client)
                 .ListKernels(std::max(options.client.timeout, kListTimeout));
  }
  if (!listed.ok()) return Refused(listed.status());
  for (const LoadEntry& entry : *entries)
    if (const absl::Status status = CheckChoice(*listed, {entry.kernel, {entry.implementation}});
        !status.ok())
      return Refused(status);
  const auto prepared = Prepare(*std::move(entries), *listed, options.seed);
  if (!prepared.ok()) return UsageError(prepared.status());

  LoadWakeup wakeup;
  LoadRun run(options, *prepared, [&wakeup] { wakeup.Notify(); });
  WatchLoad(&run, &wakeup);
  const std::unique_ptr<LoadResult> result = run.Finish();
  const LoadReport report{options, *prepared, *result, wakeup.interrupted()};
  if (globals.json) {
    PrintJson(ToJson(report));
  } else {
    PrintText(ToText(report));
  }
  const absl::Status status = Outcome(result->all);
  return status.ok() ? kExitOk : FailShown(status, kExitRefused);
}

}  // namespace

Command AddLoadCommand(const Arguments& root, const Globals& globals) {
  return MakeCommand<LoadCommand>(root.AddSubcommand("load", "Send many requests and time them"),
                                  globals, Run);
}

}  // namespace warpcall::cli
