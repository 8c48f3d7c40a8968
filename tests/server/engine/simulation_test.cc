// Runs many schedules: see Simulation. WARPCALL_TEST_SEED names the first of them,
// WARPCALL_TEST_SCHEDULES their number; a single schedule prints its events.
#include "tests/server/engine/simulation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <random>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/synchronization/mutex.h"
#include "server/engine/clock.h"

namespace warpcall::testing {
namespace {

// A million schedules take some half a minute of two cores. Instrumented or busy processes get as
// far as they may.
#if defined(NDEBUG)
constexpr uint64_t kSchedules = 1'000'000;
#else
constexpr uint64_t kSchedules = 10'000;
#endif
constexpr uint64_t kThreads = 2;
constexpr int64_t kNsMax = 40'000'000'000;
constexpr uint64_t kSchedulesMin = 10'000;
// There is an eviction in so many schedules at least, on average.
constexpr uint64_t kSchedulesPerEviction = 10;
constexpr uint64_t kSchedulesPerReplay = 40;
constexpr uint64_t kNone = std::numeric_limits<uint64_t>::max();

uint64_t FromEnvironment(const char* name, uint64_t otherwise) {
  const char* const text = std::getenv(name);
  uint64_t value = 0;
  return text != nullptr && absl::SimpleAtoi(text, &value) ? value : otherwise;
}

TEST(SimulationTest, WhateverHappensInWhateverOrderTheEngineKeepsItsWord) {
  const uint64_t first = FromEnvironment("WARPCALL_TEST_SEED", std::random_device()());
  const uint64_t count = FromEnvironment("WARPCALL_TEST_SCHEDULES", kSchedules);
  const bool all = std::getenv("WARPCALL_TEST_SCHEDULES") != nullptr;
  std::printf("Schedules from WARPCALL_TEST_SEED=%llu\n", static_cast<unsigned long long>(first));
  // Which Debian's Abseil also does in release builds, under one lock: a third of the time here.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  std::atomic<uint64_t> next{0};
  std::atomic<uint64_t> failed{kNone};
  std::atomic<int64_t> events{0};
  std::atomic<int64_t> evictions{0};
  std::atomic<int64_t> replays{0};
  const int64_t start_ns = MonotonicNs();
  std::vector<std::thread> threads;
  for (uint64_t i = 0; i < kThreads; ++i)
    threads.emplace_back([&] {
      const auto in_time = [&](uint64_t at) {
        return all || at < kSchedulesMin || MonotonicNs() - start_ns < kNsMax;
      };
      for (uint64_t at; (at = next++) < count && failed == kNone && in_time(at);) {
        const Outcome outcome = Simulate(first + at, false);
        events += outcome.events;
        evictions += outcome.evictions;
        replays += outcome.replays;
        if (!outcome.failure.empty()) failed = first + at;
      }
    });
  for (std::thread& thread : threads) thread.join();
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kAbort);
  const double seconds = static_cast<double>(MonotonicNs() - start_ns) / 1e9;
  const uint64_t done = std::min(next.load(), count);
  std::printf(
      "%llu schedules of %.0f events, %.2f evictions and %.2f replays each: %.0f a second\n",
      static_cast<unsigned long long>(done),
      static_cast<double>(events) / static_cast<double>(done),
      static_cast<double>(evictions) / static_cast<double>(done),
      static_cast<double>(replays) / static_cast<double>(done),
      static_cast<double>(done) / seconds);
  if (done >= kSchedulesMin) {
    EXPECT_GE(evictions, static_cast<int64_t>(done / kSchedulesPerEviction));
    EXPECT_GE(replays, static_cast<int64_t>(done / kSchedulesPerReplay));
  }
  if (count == 1) std::printf("%s", Simulate(first, true).trace.c_str());
  if (failed == kNone) return;
  const Outcome outcome = Simulate(failed, true);
  ADD_FAILURE() << outcome.trace << outcome.failure
                << "\nAgain: WARPCALL_TEST_SCHEDULES=1 WARPCALL_TEST_SEED=" << failed;
}

TEST(SimulationTest, ASeedMakesTheSameScheduleAgain) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    const Outcome once = Simulate(seed, true);
    EXPECT_EQ(Simulate(seed, true).trace, once.trace);
    EXPECT_EQ(Simulate(seed, false).events, once.events);
  }
}

}  // namespace
}  // namespace warpcall::testing
