// An hour's worth of requests, in less than an hour: 10 million small and 10 thousand large ones
// of every kernel, from eight connections with several calls on their way each, or as many in that
// proportion as the time allows. Samples the server's memory and metrics at fixed counts of
// requests, at rest, and says what the growth of resident memory comes to over the whole.
//
//   warpcall_soak_bench [--seconds N] [--scale S] ...      --help says the rest
//
// Exit status 1: a call failed, an answer was wrong, something was left behind (staging memory,
// queued requests), or memory grows.
#include <CLI/CLI.hpp>
#include <chrono>
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
#include "kernels/common/status_macros.h"
#include "tests/bench/soak_connection.h"
#include "tests/bench/soak_growth.h"
#include "tests/bench/soak_sample.h"
#include "tests/bench/transport_caller.h"
#include "tests/bench/transport_server.h"

namespace warpcall::bench {
namespace {

constexpr double kMib = 1 << 20;
constexpr int64_t kHourSmallRequests = 10'000'000;
constexpr int64_t kHourLargeRequests = 10'000;
constexpr int64_t kSmallPerLarge = kHourSmallRequests / kHourLargeRequests;
// What an hour may add to resident memory for it to count as flat.
constexpr double kHourGrowthMibMax = 32;
constexpr int kConnections = 8;
// Staging memory, gRPC's buffers and what malloc keeps of them reach their peak before the first
// request that counts, not whenever the largest requests happen to meet.
constexpr int kLargestRounds = 3;
constexpr size_t kTableLines = 20;
// A sample now and then has some MiB more, which malloc keeps until the next large request. What
// leaks shows in the least of a few.
constexpr size_t kSamplesPerFloor = 4;

struct SoakOptions {
  double seconds = 120;
  double scale = 1;
  int64_t sample_requests = 5000;
  std::string device = {};
  std::string warpcalld = DefaultWarpcalld();
  std::string server_flags = {};
  uint64_t seed = std::random_device{}();
};

class Soak {
 public:
  explicit Soak(const SoakOptions& options) : options_(options) {}

  absl::Status Run();

 private:
  using Work = absl::FunctionRef<absl::Status(SoakConnection*, int index)>;

  absl::Status Start();
  // On every connection at once.
  absl::Status OnAll(Work work);
  absl::Status Sample();
  // OK when nothing was left behind and memory does not grow.
  absl::Status Judge() const;

  const SoakOptions options_;
  std::vector<char> data_;
  SocketFolder folder_;
  std::unique_ptr<BenchServer> server_;
  std::vector<std::unique_ptr<SoakConnection>> connections_;
  int64_t requests_ = 0;
  std::vector<SoakSample> samples_;
};

absl::Status Soak::Start() {
  data_ = RandomFloats(2 * kLargeRequestBytesMax);
  const std::vector<std::string> flags =
      absl::StrSplit(options_.server_flags, ' ', absl::SkipEmpty());
  ASSIGN_OR_RETURN(server_, StartWarpcalld(folder_, {options_.warpcalld, flags}));
  for (int i = 0; i < kConnections; ++i)
    connections_.push_back(std::make_unique<SoakConnection>(
        SoakConnectionOptions{.address = server_->address(Transport::kTcp),
                              .device = options_.device,
                              .data = data_,
                              .seed = options_.seed + static_cast<uint64_t>(i)}));
  return absl::OkStatus();
}

absl::Status Soak::OnAll(Work work) {
  std::vector<absl::Status> statuses(connections_.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < connections_.size(); ++i)
    threads.emplace_back(
        [&, i] { statuses[i] = work(connections_[i].get(), static_cast<int>(i)); });
  for (std::thread& thread : threads) thread.join();
  absl::Status first;
  for (const absl::Status& status : statuses) first.Update(status);
  return first;
}

absl::Status Soak::Sample() {
  SoakSample sample;
  ASSIGN_OR_RETURN(sample, TakeSample(*server_));
  sample.requests = requests_;
  for (const auto& connection : connections_) sample.input_bytes += connection->input_bytes();
  samples_.push_back(sample);
  return absl::OkStatus();
}

absl::Status Soak::Run() {
  using SteadyClock = std::chrono::steady_clock;
  RETURN_IF_ERROR(Start());
  for (int round = 0; round < kLargestRounds; ++round)
    RETURN_IF_ERROR(OnAll([](SoakConnection* one, int) { return one->RunLargest(); }));
  RETURN_IF_ERROR(Sample());
  const int64_t large = options_.sample_requests / kSmallPerLarge;
  const int64_t small = large * kSmallPerLarge;
  const double requests_max =
      options_.scale * static_cast<double>(kHourSmallRequests + kHourLargeRequests);
  const auto begin = SteadyClock::now();
  const auto seconds = [&] {
    return std::chrono::duration<double>(SteadyClock::now() - begin).count();
  };
  while (seconds() < options_.seconds && static_cast<double>(requests_) < requests_max) {
    RETURN_IF_ERROR(OnAll([&](SoakConnection* one, int i) {
      // Fewer large requests than connections: each has them in its turn.
      const auto turn = (i + static_cast<int64_t>(samples_.size())) % kConnections;
      const auto share = [turn](int64_t all) {
        return all * (turn + 1) / kConnections - all * turn / kConnections;
      };
      return one->Run(share(small), share(large));
    }));
    requests_ += small + large;
    RETURN_IF_ERROR(Sample());
  }
  const double took_seconds = seconds();
  const std::string text = absl::StrFormat(
      "%s\n%d requests, one in %d of 1 to 64 MiB, in %.0f s (%.0f/s), seed %u; at most %.0f MiB "
      "were resident\n",
      SamplesTable(samples_, kTableLines), requests_, small / large + 1, took_seconds,
      static_cast<double>(requests_) / took_seconds, options_.seed,
      static_cast<double>(server_->ResidentBytesPeak()) / kMib);
  std::fputs(text.c_str(), stdout);
  connections_.clear();
  RETURN_IF_ERROR(Judge());
  return server_->Stop();
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
      "large ones; flat is at most %g: %s. From the first point to the last %+.2f MiB, at most "
      "%+.2f in one step\n",
      mib.size(), kSamplesPerFloor, slope->value, slope->error, hour.value, hour.error,
      kHourSmallRequests, kHourLargeRequests, kHourGrowthMibMax, GrowthName(growth),
      mib.back() - mib.front(), LargestStep(mib));
  std::fputs(text.c_str(), stdout);
  return growth == Growth::kGrows ? absl::InternalError("resident memory grows") : absl::OkStatus();
}

int Main(int argc, char** argv) {
  BecomeServerIfAsked(argc, argv);
  SoakOptions options;
  CLI::App app("An hour's worth of requests for warpcalld, or a part of it: is its memory flat?",
               "warpcall_soak_bench");
  app.option_defaults()->always_capture_default();
  app.add_option("--seconds", options.seconds, "The longest that it sends requests")
      ->check(CLI::Range(1.0, 86400.0));
  app.add_option("--scale", options.scale, "The most that it sends, in hours' worths")
      ->check(CLI::Range(1e-6, 1000.0));
  app.add_option("--sample_requests", options.sample_requests,
                 "Small requests from one sample to the next, rounded down to thousands: "
                 "one large request belongs to each")
      ->check(CLI::Range(kSmallPerLarge, kHourSmallRequests));
  app.add_option("--device", options.device, "Device of warpcalld; empty: its choice");
  app.add_option("--warpcalld", options.warpcalld, "The server's program")
      ->check(CLI::ExistingFile);
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
