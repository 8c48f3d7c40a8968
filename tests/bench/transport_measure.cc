#include "tests/bench/transport_measure.h"

#include <chrono>
#include <latch>
#include <memory>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/common/status_macros.h"
#include "tests/bench/transport_caller.h"
#include "tests/e2e/children.h"

namespace warpcall::bench {
namespace {

using SteadyClock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

constexpr int kRounds = 8;
// Holds however long a call takes: a contender with one slow round still has others to show.
constexpr int kRoundsMin = 3;

using Callers = std::vector<std::unique_ptr<Caller>>;

absl::Status Named(const absl::Status& status, const Contender& contender) {
  return absl::Status(status.code(),
                      absl::StrCat(ContenderName(contender), ": ", status.message()));
}

// Builds the call that `contender` sends at the point.
client::Call CallOf(const Contender& contender, const MeasureOptions& options) {
  const int64_t elements = static_cast<int64_t>(options.point.bytes / sizeof(float));
  return {.kernel = contender.kernel,
          .inputs = {client::Tensor(DataType::kFloat32, {elements},
                                    options.data.data().first(options.point.bytes),
                                    options.data.owner())},
          .options = {.device = options.device}};
}

absl::StatusOr<Callers> ConnectCallers(const Seat& seat, const MeasureOptions& options) {
  Callers callers;
  for (int i = 0; i < options.point.connections; ++i) {
    ASSIGN_OR_RETURN(std::unique_ptr<Caller> caller,
                     NewCaller({seat.contender.kind, seat.address, CallOf(seat.contender, options),
                                options.one_connection}));
    RETURN_IF_ERROR(caller->Verify());
    callers.push_back(std::move(caller));
  }
  return callers;
}

// One caller's share of a round: calls, at least one, until the time is over.
struct Loop {
  cli::LatencyHistogram latencies;
  std::chrono::nanoseconds compared = {};  // went into comparing answers
  absl::Status status;

  void Run(Caller* caller, double seconds) {
    const auto begin = SteadyClock::now();
    for (auto end = begin;
         status.ok() && (end == begin || Seconds(end - begin).count() < seconds);) {
      const auto start = SteadyClock::now();
      status = caller->Call();
      end = SteadyClock::now();
      latencies.Record((end - start - caller->compared()).count());
      compared += caller->compared();
    }
  }
};

// All callers at once, each on a thread; adds to `tally`.
absl::Status RunRound(const Callers& callers, const Seat& seat, double seconds, Tally* tally) {
  std::vector<Loop> loops(callers.size());
  std::latch start(static_cast<std::ptrdiff_t>(loops.size()) + 1);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < loops.size(); ++i) {
    threads.emplace_back([&, i] {
      start.arrive_and_wait();
      loops[i].Run(callers[i].get(), seconds);
    });
  }
  const double cpu_seconds = testing::CpuSecondsOf(seat.pid);
  start.arrive_and_wait();
  const auto begin = SteadyClock::now();
  for (std::thread& thread : threads) thread.join();
  Seconds wall = SteadyClock::now() - begin;
  for (const Loop& loop : loops) wall -= loop.compared / static_cast<double>(loops.size());
  tally->wall_seconds += wall.count();
  tally->server_cpu_seconds += testing::CpuSecondsOf(seat.pid) - cpu_seconds;
  for (const Loop& loop : loops) {
    RETURN_IF_ERROR(loop.status);
    tally->latencies.Merge(loop.latencies);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<Figures>> Measure(absl::Span<const Seat> seats,
                                             const MeasureOptions& options) {
  std::vector<Callers> callers;
  for (const Seat& seat : seats) {
    absl::StatusOr<Callers> connected = ConnectCallers(seat, options);
    if (!connected.ok()) return Named(connected.status(), seat.contender);
    callers.push_back(*std::move(connected));
  }
  std::vector<Tally> tallies(seats.size());
  const auto run_round = [&](size_t seat, double seconds, Tally* tally) {
    const absl::Status status = RunRound(callers[seat], seats[seat], seconds, tally);
    return status.ok() ? status : Named(status, seats[seat].contender);
  };
  const double round_seconds = options.seconds / kRounds;
  // Connections, pages and pools before the first round that counts.
  for (size_t i = 0; i < seats.size(); ++i) {
    Tally discarded;
    RETURN_IF_ERROR(run_round(i, round_seconds, &discarded));
  }
  const auto begin = SteadyClock::now();
  const double budget_seconds = options.seconds * static_cast<double>(seats.size());
  for (size_t round = 0; round < kRounds; ++round) {
    if (round >= kRoundsMin && Seconds(SteadyClock::now() - begin).count() > budget_seconds) break;
    // Another contender begins each round, so that none always follows the same neighbour.
    for (size_t i = 0; i < seats.size(); ++i) {
      const size_t seat = (round + i) % seats.size();
      RETURN_IF_ERROR(run_round(seat, round_seconds, &tallies[seat]));
    }
  }
  std::vector<Figures> figures;
  for (const Tally& tally : tallies) figures.push_back(Summarize(tally, options.point.bytes));
  return figures;
}

Figures Summarize(const Tally& tally, size_t bytes) {
  const auto percentile_us = [&](double fraction) {
    return static_cast<double>(tally.latencies.Percentile(fraction)) * 1e-3;
  };
  Figures figures;
  figures.requests = tally.latencies.Count();
  figures.p50_us = percentile_us(0.5);
  figures.p99_us = percentile_us(0.99);
  figures.p999_us = percentile_us(0.999);
  if (figures.requests == 0 || tally.wall_seconds <= 0) return figures;
  const auto requests = static_cast<double>(figures.requests);
  figures.requests_per_second = requests / tally.wall_seconds;
  figures.gigabytes_per_second = figures.requests_per_second * static_cast<double>(bytes) * 1e-9;
  figures.server_cpu_us = tally.server_cpu_seconds / requests * 1e6;
  return figures;
}

}  // namespace warpcall::bench
