#include "tests/bench/transport_measure.h"

#include <chrono>
#include <latch>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/common/status_macros.h"

namespace warpcall::bench {
namespace {

using SteadyClock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

constexpr int kRounds = 8;
// However long a call takes: a contender of which one round is slow still has others to show.
constexpr int kRoundsMin = 3;

using Callers = std::vector<std::unique_ptr<Caller>>;

absl::Status Named(const absl::Status& status, const Contender& contender) {
  return absl::Status(status.code(),
                      absl::StrCat(ContenderName(contender), ": ", status.message()));
}

absl::StatusOr<Callers> Connect(const Seat& seat, const MeasureOptions& options) {
  Callers callers;
  for (int i = 0; i < options.point.connections; ++i) {
    std::unique_ptr<Caller> caller;
    ASSIGN_OR_RETURN(caller, NewCaller({.contender = seat.contender,
                                        .address = seat.server->address(options.point.transport),
                                        .device = options.device,
                                        .data = options.data.first(options.point.bytes)}));
    callers.push_back(std::move(caller));
  }
  RETURN_IF_ERROR(callers[0]->Verify());
  return callers;
}

// What one caller does in a round: calls, at least one, until the time is over.
struct Loop {
  Caller* caller;
  double seconds;
  std::vector<double> latencies_us = {};
  absl::Status status = {};

  void Run() {
    const auto begin = SteadyClock::now();
    for (auto end = begin;
         status.ok() && (end == begin || Seconds(end - begin).count() < seconds);) {
      const auto start = SteadyClock::now();
      status = caller->Call();
      end = SteadyClock::now();
      latencies_us.push_back(Seconds(end - start).count() * 1e6);
    }
  }
};

// All callers at once, each on a thread; adds to `tally`.
absl::Status RunRound(const Callers& callers, const BenchServer& server, double seconds,
                      Tally* tally) {
  std::vector<Loop> loops;
  for (const auto& caller : callers) loops.push_back({caller.get(), seconds});
  std::latch start(static_cast<std::ptrdiff_t>(loops.size()) + 1);
  std::vector<std::thread> threads;
  for (Loop& loop : loops) {
    threads.emplace_back([&loop, &start] {
      start.arrive_and_wait();
      loop.Run();
    });
  }
  const double cpu_seconds = server.CpuSeconds();
  start.arrive_and_wait();
  const auto begin = SteadyClock::now();
  for (std::thread& thread : threads) thread.join();
  tally->wall_seconds += Seconds(SteadyClock::now() - begin).count();
  tally->server_cpu_seconds += server.CpuSeconds() - cpu_seconds;
  for (const Loop& loop : loops) {
    RETURN_IF_ERROR(loop.status);
    tally->latencies_us.insert(tally->latencies_us.end(), loop.latencies_us.begin(),
                               loop.latencies_us.end());
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<Figures>> Measure(absl::Span<const Seat> seats,
                                             const MeasureOptions& options) {
  std::vector<Callers> callers;
  for (const Seat& seat : seats) {
    absl::StatusOr<Callers> connected = Connect(seat, options);
    if (!connected.ok()) return Named(connected.status(), seat.contender);
    callers.push_back(*std::move(connected));
  }
  std::vector<Tally> tallies(seats.size());
  const auto run_round = [&](size_t seat, double seconds, Tally* tally) {
    const absl::Status status = RunRound(callers[seat], *seats[seat].server, seconds, tally);
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
  for (Tally& tally : tallies) figures.push_back(Summarize(std::move(tally), options.point.bytes));
  return figures;
}

}  // namespace warpcall::bench
