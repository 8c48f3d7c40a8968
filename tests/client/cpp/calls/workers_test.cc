#include "client/cpp/calls/workers.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "absl/synchronization/barrier.h"
#include "absl/synchronization/notification.h"

namespace warpcall::client {
namespace {

TEST(WorkersTest, CallsEveryTaskOnce) {
  Workers workers(3);
  for (const int count : {0, 1, 2, 4, 17}) {
    std::vector<std::atomic<int>> calls(static_cast<size_t>(count));
    workers.Run(count, [&](int i) { calls[static_cast<size_t>(i)].fetch_add(1); });
    for (const auto& called : calls) EXPECT_EQ(called.load(), 1) << count;
  }
}

TEST(WorkersTest, TasksRunBesideEachOther) {
  Workers workers(3);
  // Returns only when all four tasks are in it.
  absl::Barrier* barrier = new absl::Barrier(4);
  workers.Run(4, [&](int) {
    if (barrier->Block()) delete barrier;
  });
}

TEST(WorkersTest, ACallerDoesItsWorkWhileAnotherHoldsAllWorkers) {
  Workers workers(1);
  absl::Notification release;
  absl::Barrier* held = new absl::Barrier(3);
  std::thread other([&] {
    workers.Run(2, [&](int) {
      if (held->Block()) delete held;
      release.WaitForNotification();
    });
  });
  if (held->Block()) delete held;
  // The only worker and the other caller wait for us.
  std::atomic<int> calls{0};
  workers.Run(5, [&](int) { calls.fetch_add(1); });
  EXPECT_EQ(calls.load(), 5);
  release.Notify();
  other.join();
}

TEST(WorkersTest, WithoutThreadsTheCallerWorksAlone) {
  Workers workers(0);
  const std::thread::id self = std::this_thread::get_id();
  int calls = 0;
  workers.Run(3, [&](int) {
    EXPECT_EQ(std::this_thread::get_id(), self);
    ++calls;
  });
  EXPECT_EQ(calls, 3);
}

TEST(WorkersTest, ManyCallersAtOnce) {
  Workers workers(2);
  std::atomic<int> calls{0};
  std::vector<std::thread> callers;
  for (int i = 0; i < 6; ++i)
    callers.emplace_back([&] {
      for (int round = 0; round < 200; ++round) workers.Run(4, [&](int) { calls.fetch_add(1); });
    });
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(calls.load(), 6 * 200 * 4);
}

}  // namespace
}  // namespace warpcall::client
