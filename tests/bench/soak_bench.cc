// An hour's worth of requests, in less than an hour: 10 million small and 10 thousand large ones
// of every kernel, from eight connections with several calls on their way each, or as many in that
// proportion as the time allows. Samples the server's memory and metrics at fixed counts of
// requests, at rest, and says what the growth of resident memory comes to over the whole.
//
//   warpcall_soak_bench [--seconds N] ...      --help says the rest
//
// Exit status 1: a call failed, an answer was wrong, something was left behind (staging memory,
// queued requests), or memory grows.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "client/cli/common/inputs.h"
#include "client/cli/load/calls.h"
#include "client/cli/load/mix.h"
#include "proto/common/status_macros.h"
#include "tests/bench/soak_growth.h"
#include "tests/e2e/server_process.h"
#include "warpcall/client.h"

namespace warpcall::bench {
namespace {

constexpr double kMib = 1 << 20;
constexpr int64_t kHourSmallRequests = 10'000'000;
constexpr int64_t kHourLargeRequests = 10'000;
constexpr int64_t kSmallPerLarge = kHourSmallRequests / kHourLargeRequests;
// Growth of resident memory an hour that still counts as flat.
constexpr double kHourGrowthMibMax = 32;
constexpr int kConnections = 8;
constexpr int kCallersPerConnection = 4;
constexpr int kCallers = kConnections * kCallersPerConnection;
constexpr absl::Duration kCallTimeout = absl::Minutes(2);
// Time to wait for the last staging buffer, which is given back a moment after its response.
constexpr absl::Duration kRestTimeout = absl::Seconds(5);
// Staging memory, gRPC's buffers and malloc's share of them reach their peak before the first
// request that counts, not whenever the largest requests happen to meet.
constexpr int kLargestRounds = 3;
constexpr size_t kTableLines = 20;
// Some samples have a few MiB more, which malloc keeps until the next large request. A leak shows
// in the minimum of a few samples.
constexpr size_t kSamplesPerFloor = 4;

// Shapes for one size of request: shapes of softmax and matmul for `warpcall load` (primes, tails,
// vectors, and some that no tile fits), and numbers of elements for identity and gelu.
struct Sizes {
  const char* mix;
  int64_t elements_min;
  int64_t elements_max;
};
constexpr Sizes kSmall = {
    "softmax:1x16,softmax:4x64,softmax:3x1000,softmax:16x256,softmax:1000x4,softmax:127x129,"
    "softmax:64x256,softmax:1x16384,matmul:1x64*64x64,matmul:8x32*32x16,matmul:16x64*64x32,"
    "matmul:1x128*128x100,matmul:127x33*33x65,matmul:64x64*64x64,matmul:96x64*64x80,"
    "matmul:32x128*128x64",
    16, 16 << 10};
constexpr Sizes kLarge = {
    "softmax:1024x256,softmax:4099x1021,softmax:4096x1024,softmax:65536x256,softmax:64x131072,"
    "softmax:2048x8192,matmul:512x512*512x512,matmul:1x4096*4096x1024,matmul:16x4096*4096x1024,"
    "matmul:1021x509*509x257,matmul:256x1024*1024x1024",
    256 << 10, 16 << 20};

struct SoakOptions {
  double seconds = 120;
  int64_t sample_requests = 5000;
  std::string device = {};
  std::string server_flags = {};
  uint64_t seed = std::random_device{}();
};

// One of a connection's callers: sends requests with data that differ each time.
class Caller {
 public:
  Caller(std::shared_ptr<client::Client> client, const SoakOptions& options, uint64_t seed)
      : client_(std::move(client)), device_(options.device), random_(seed) {}

  // The requests take their inputs from random places of `data`: float32, at least twice the
  // largest. They are sent one after the other, the large ones evenly among the small. The first
  // answer that is an error or wrong ends it.
  absl::Status Run(const client::Tensor& data, int64_t small, int64_t large) {
    const int64_t total = small + large;
    for (int64_t i = 0; i < total; ++i) {
      const bool is_large = large * (i + 1) / total > large * i / total;
      RETURN_IF_ERROR(Send(data, is_large ? large_ : small_));
    }
    return absl::OkStatus();
  }
  absl::Status RunLargest(const client::Tensor& data) {
    return Send(data, "identity", {{kLarge.elements_max}});
  }

  int64_t input_bytes() const { return input_bytes_; }  // sent so far

 private:
  struct Choice {
    explicit Choice(const Sizes& sizes)
        : entries(*cli::ParseMix(sizes.mix, {})),
          elements_log2(std::log2(sizes.elements_min), std::log2(sizes.elements_max)) {}
    std::vector<cli::LoadEntry> entries;
    std::uniform_real_distribution<double> elements_log2;  // as many of each power of two
  };

  size_t Pick(size_t count) { return std::uniform_int_distribution<size_t>(0, count - 1)(random_); }

  // Half of them are identity and gelu.
  absl::Status Send(const client::Tensor& data, Choice& choice) {
    if (const size_t kernel = Pick(4); kernel < 2) {
      const auto elements = static_cast<int64_t>(std::exp2(choice.elements_log2(random_)));
      return Send(data, kernel == 0 ? "identity" : "gelu", {{elements}});
    }
    const cli::LoadEntry& entry = choice.entries[Pick(choice.entries.size())];
    return Send(data, entry.kernel, entry.shapes);
  }

  absl::Status Send(const client::Tensor& data, const std::string& kernel,
                    const cli::Shapes& shapes) {
    client::Call call = {.kernel = kernel, .options = {.device = device_}};
    for (const cli::Shape& shape : shapes) {
      ASSIGN_OR_RETURN(const int64_t bytes, client::ByteCount(DataType::kFloat32, shape));
      const auto size = static_cast<size_t>(bytes);
      const size_t place = sizeof(float) * Pick((data.data().size() - size) / sizeof(float) + 1);
      call.inputs.emplace_back(DataType::kFloat32, shape, data.data().subspan(place, size),
                               data.owner());
      input_bytes_ += bytes;
    }
    const absl::StatusOr<client::Result> result = client_->Execute(call);
    RETURN_IF_ERROR(result.status());
    return cli::CheckAnswer(call, *result);
  }

  const std::shared_ptr<client::Client> client_;
  const std::string device_;
  std::mt19937_64 random_;
  Choice small_{kSmall};
  Choice large_{kLarge};
  int64_t input_bytes_ = 0;
};

// One sample, taken between requests.
struct SoakSample {
  int64_t requests = 0;  // answered when it was taken, warm-up not counted
  int64_t input_bytes = 0;
  int64_t resident_bytes = 0;
  int64_t staging_bytes = 0;  // in use, with no request on its way
  int64_t queue_depth = 0;
  int64_t rejected = 0;
  int64_t threads = 0;
  int64_t open_fds = 0;
  int64_t copied_in_bytes = 0;  // on the host
  int64_t copied_out_bytes = 0;
};

// Markdown, one line in about kTableLines.
std::string SamplesTable(const std::vector<SoakSample>& samples) {
  std::string text =
      "| requests | sent MiB | resident MiB | staging in use | queue | rejected | threads | open "
      "files | copied in / sent | copied out |\n|---|---|---|---|---|---|---|---|---|---|\n";
  const size_t step = std::max<size_t>(1, samples.size() / kTableLines);
  for (size_t i = 0; i < samples.size(); ++i) {
    if (i % step != 0 && i + 1 != samples.size()) continue;
    const SoakSample& s = samples[i];
    const double sent = static_cast<double>(s.input_bytes - samples[0].input_bytes);
    const double copied = static_cast<double>(s.copied_in_bytes - samples[0].copied_in_bytes);
    absl::StrAppendFormat(&text, "| %d | %.0f | %.2f | %d | %d | %d | %d | %d | %s | %d |\n",
                          s.requests, sent / kMib, static_cast<double>(s.resident_bytes) / kMib,
                          s.staging_bytes, s.queue_depth, s.rejected, s.threads, s.open_fds,
                          sent > 0 ? absl::StrFormat("%.4f", copied / sent) : "–",
                          s.copied_out_bytes);
  }
  return text;
}

class Soak {
 public:
  explicit Soak(const SoakOptions& options) : options_(options) {}

  absl::Status Run();

 private:
  using Work = absl::FunctionRef<absl::Status(Caller*, int index)>;

  absl::Status Start();
  // Runs `work` for every caller at once.
  absl::Status OnAll(Work work);
  absl::Status Sample();
  // OK when nothing was left behind and memory does not grow.
  absl::Status Judge() const;

  const SoakOptions options_;
  client::Tensor data_;
  std::unique_ptr<testing::ServerProcess> server_;
  std::vector<std::unique_ptr<Caller>> callers_;
  int64_t requests_ = 0;
  std::vector<SoakSample> samples_;
};

absl::Status Soak::Start() {
  std::mt19937_64 random(options_.seed);
  ASSIGN_OR_RETURN(data_, cli::RandomTensor({DataType::kFloat32, {2 * kLarge.elements_max}},
                                            cli::Distribution::kNormal, &random));
  std::vector<std::string> flags = {"--log_level=warning"};
  for (absl::string_view flag : absl::StrSplit(options_.server_flags, ' ', absl::SkipEmpty()))
    flags.emplace_back(flag);
  server_ = std::make_unique<testing::ServerProcess>(flags);
  if (server_->address().empty()) return absl::UnavailableError("warpcalld did not start");
  server_->AwaitRows();
  std::shared_ptr<client::Client> client;
  for (uint64_t i = 0; i < kCallers; ++i) {
    if (i % kCallersPerConnection == 0)
      client = std::make_shared<client::Client>(
          server_->address(),
          client::ClientOptions{.retry = {.attempts_max = 1}, .timeout = kCallTimeout});
    callers_.push_back(std::make_unique<Caller>(client, options_, options_.seed + i));
  }
  return absl::OkStatus();
}

absl::Status Soak::OnAll(Work work) {
  std::vector<absl::Status> statuses(kCallers);
  std::vector<std::thread> threads;
  for (int i = 0; i < kCallers; ++i)
    threads.emplace_back([&, i] { statuses[i] = work(callers_[i].get(), i); });
  for (std::thread& thread : threads) thread.join();
  absl::Status first;
  for (const absl::Status& status : statuses) first.Update(status);
  return first;
}

absl::Status Soak::Sample() {
  testing::Samples metrics;
  const auto sum = [&](const char* name, const std::vector<std::string>& labels = {}) {
    return static_cast<int64_t>(testing::SumOf(metrics, name, labels));
  };
  SoakSample sample = {.requests = requests_};
  for (const auto& caller : callers_) sample.input_bytes += caller->input_bytes();
  const absl::Time deadline = absl::Now() + kRestTimeout;
  do {
    metrics = server_->Metrics();
    sample.staging_bytes = sum("warpcall_staging_bytes", {"state=\"used\""});
  } while (sample.staging_bytes > 0 && absl::Now() < deadline);
  sample.queue_depth = sum("warpcall_queue_depth");
  sample.rejected = sum("warpcall_rejected_total");
  sample.open_fds = sum("process_open_fds");
  sample.threads = sum("process_threads");
  sample.copied_in_bytes = sum("warpcall_host_copy_bytes_total", {"where=\"copy_in\""});
  sample.copied_out_bytes = sum("warpcall_host_copy_bytes_total", {"where=\"copy_out\""});
  sample.resident_bytes = server_->ResidentBytes();
  samples_.push_back(sample);
  if (sample.threads > 0) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("no metrics at ", server_->metrics_address()));
}

absl::Status Soak::Run() {
  using SteadyClock = std::chrono::steady_clock;
  RETURN_IF_ERROR(Start());
  for (int round = 0; round < kLargestRounds; ++round)
    RETURN_IF_ERROR(OnAll([&](Caller* one, int i) {
      return i % kCallersPerConnection == 0 ? one->RunLargest(data_) : absl::OkStatus();
    }));
  RETURN_IF_ERROR(Sample());
  const int64_t large = options_.sample_requests / kSmallPerLarge;
  const int64_t small = large * kSmallPerLarge;
  const auto begin = SteadyClock::now();
  const auto seconds = [&] {
    return std::chrono::duration<double>(SteadyClock::now() - begin).count();
  };
  while (seconds() < options_.seconds && requests_ < kHourSmallRequests + kHourLargeRequests) {
    RETURN_IF_ERROR(OnAll([&](Caller* one, int i) {
      // Fewer large requests than callers: each has them in its turn.
      const auto turn = (i + static_cast<int64_t>(samples_.size())) % kCallers;
      const auto share = [turn](int64_t all) {
        return all * (turn + 1) / kCallers - all * turn / kCallers;
      };
      return one->Run(data_, share(small), share(large));
    }));
    requests_ += small + large;
    RETURN_IF_ERROR(Sample());
  }
  const double took_seconds = seconds();
  const std::string text = absl::StrFormat(
      "%s\n%d requests, one in %d of 1 to 64 MiB, in %.0f s (%.0f/s), seed %u; at most %.0f MiB "
      "were resident\n",
      SamplesTable(samples_), requests_, small / large + 1, took_seconds,
      static_cast<double>(requests_) / took_seconds, options_.seed,
      static_cast<double>(server_->PeakResidentBytes()) / kMib);
  std::fputs(text.c_str(), stdout);
  callers_.clear();
  RETURN_IF_ERROR(Judge());
  if (const int status = server_->Stop(); status != 0)
    return absl::InternalError(
        absl::StrCat("the server ended with status ", status, ": ", server_->log()));
  return absl::OkStatus();
}

absl::Status Soak::Judge() const {
  const SoakSample& last = samples_.back();
  if (last.staging_bytes != 0 || last.queue_depth != 0)
    return absl::InternalError(absl::StrCat("left behind at rest: ", last.staging_bytes,
                                            " bytes of staging memory, ", last.queue_depth,
                                            " queued requests; expected none"));
  std::vector<double> millions;
  std::vector<double> mib;
  for (size_t i = samples_.size() / 3; i < samples_.size(); ++i) {
    millions.push_back(static_cast<double>(samples_[i].requests) * 1e-6);
    mib.push_back(static_cast<double>(samples_[i].resident_bytes) / kMib);
  }
  millions = BlockMinima(millions, kSamplesPerFloor);
  mib = BlockMinima(mib, kSamplesPerFloor);
  const std::optional<Slope> slope = FitSlope(millions, mib);
  if (!slope.has_value()) {
    std::printf("resident memory: undecided, %zu samples after the first third are too few\n",
                samples_.size() - samples_.size() / 3);
    return absl::OkStatus();
  }
  constexpr double kHourMillions = 1e-6 * (kHourSmallRequests + kHourLargeRequests);
  const Slope hour = {slope->value * kHourMillions, slope->error * kHourMillions};
  const Growth growth = JudgeGrowth(hour, kHourGrowthMibMax);
  const std::string text = absl::StrFormat(
      "resident memory after the first third, %d points, each the least of %d samples: %+.3f MiB "
      "per million requests (standard error %.3f), that is %+.1f MiB (%.1f) over %d small and %d "
      "large ones; flat is at most %g: %s. From the first point to the last %+.2f MiB\n",
      mib.size(), kSamplesPerFloor, slope->value, slope->error, hour.value, hour.error,
      kHourSmallRequests, kHourLargeRequests, kHourGrowthMibMax, GrowthName(growth),
      mib.back() - mib.front());
  std::fputs(text.c_str(), stdout);
  return growth == Growth::kGrows ? absl::InternalError("resident memory grows") : absl::OkStatus();
}

int Main(int argc, char** argv) {
  SoakOptions options;
  CLI::App app("An hour's worth of requests for warpcalld, or a part of it: is its memory flat?",
               "warpcall_soak_bench");
  app.option_defaults()->always_capture_default();
  app.add_option("--seconds", options.seconds, "The longest that it sends requests")
      ->check(CLI::Range(1.0, 86400.0));
  app.add_option("--sample_requests", options.sample_requests,
                 "Small requests from one sample to the next, rounded down to thousands: "
                 "one large request belongs to each")
      ->check(CLI::Range(kSmallPerLarge, kHourSmallRequests));
  app.add_option("--device", options.device, "Device of warpcalld; empty: its choice");
  app.add_option("--server_flags", options.server_flags,
                 "More flags for warpcalld, separated by blanks");
  app.add_option("--seed", options.seed, "Of sizes and order; drawn when it is not given");
  constexpr int kUsageError = 2;
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kUsageError;
  }
  const absl::Status status = Soak(options).Run();
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return 1;
}

}  // namespace
}  // namespace warpcall::bench

int main(int argc, char** argv) { return warpcall::bench::Main(argc, argv); }
