#include "kernels/cpu/thread_pool.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <set>
#include <thread>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/synchronization/barrier.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "tests/e2e/eventually.h"
#include "tests/thread_rests.h"

namespace warpcall::cpu {
namespace {

struct Range {
  int64_t begin;
  int64_t end;
};

std::vector<Range> RangesOf(ThreadPool& pool, int64_t count, int64_t grain) {
  absl::Mutex mutex;
  std::vector<Range> ranges;
  pool.ParallelFor(count, grain, [&](int64_t begin, int64_t end) {
    absl::MutexLock lock(&mutex);
    ranges.push_back({begin, end});
  });
  return ranges;
}

TEST(ThreadPoolTest, CountsTheCaller) {
  EXPECT_EQ(ThreadPool(1).threads(), 1);
  EXPECT_EQ(ThreadPool(3).threads(), 3);
}

TEST(ThreadPoolTest, RangesCoverEverythingOnceInMultiplesOfTheGrain) {
  for (int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    for (int64_t count : {1, 2, 7, 64, 1000, 1001}) {
      for (int64_t grain : {1, 3, 64, 2000}) {
        std::vector<int> seen(count, 0);
        for (const Range& range : RangesOf(pool, count, grain)) {
          ASSERT_LT(range.begin, range.end);
          EXPECT_EQ(range.begin % grain, 0);
          EXPECT_TRUE(range.end == count || range.end % grain == 0);
          for (int64_t i = range.begin; i < range.end; ++i) ++seen[i];
        }
        EXPECT_EQ(std::set<int>(seen.begin(), seen.end()), std::set<int>{1})
            << threads << " threads, count " << count << ", grain " << grain;
      }
    }
  }
}

class SettableFlag final : public StopFlag {
 public:
  void Set() { set_ = true; }
  bool IsSet() const override { return set_; }

 private:
  std::atomic<bool> set_{false};
};

TEST(ThreadPoolTest, WithAStopFlagRangesAreShortAndNoneBeginsOnceItIsSet) {
  for (int threads : {1, 3}) {
    ThreadPool pool(threads);
    for (const int64_t grain : {int64_t{1}, int64_t{10}}) {
      SettableFlag stop;
      std::atomic<int64_t> done{0};
      std::atomic<int64_t> longest{0};
      const auto body = [&](int64_t begin, int64_t end) {
        if (end - begin > longest) longest = end - begin;
        done += end - begin;
      };
      pool.ParallelFor(100'000, grain, body, &stop);
      EXPECT_EQ(done, 100'000);
      EXPECT_LE(longest, grain == 1 ? 1 : 32 * grain);
      done = 0;
      pool.ParallelFor(
          100'000, grain,
          [&](int64_t begin, int64_t end) {
            body(begin, end);
            stop.Set();
          },
          &stop);
      EXPECT_GE(done, 1);
      EXPECT_LE(done, threads * 32 * grain);  // each thread's current piece
    }
  }
}

TEST(ThreadPoolTest, NothingToDoCallsNothing) {
  ThreadPool pool(2);
  EXPECT_TRUE(RangesOf(pool, 0, 1).empty());
}

TEST(ThreadPoolTest, OneGrainRunsOnTheCaller) {
  ThreadPool pool(4);
  std::thread::id ran_on;
  pool.ParallelFor(10, 10, [&](int64_t, int64_t) { ran_on = std::this_thread::get_id(); });
  EXPECT_EQ(ran_on, std::this_thread::get_id());
}

// Each body waits until both are running, so the test ends only if a worker takes one.
TEST(ThreadPoolTest, WorkersShareTheWork) {
  ThreadPool pool(2);
  absl::Barrier* const barrier = new absl::Barrier(2);
  absl::Mutex mutex;
  std::set<std::thread::id> ids;
  pool.ParallelFor(2, 1, [&](int64_t, int64_t) {
    {
      absl::MutexLock lock(&mutex);
      ids.insert(std::this_thread::get_id());
    }
    if (barrier->Block()) delete barrier;
  });
  EXPECT_EQ(ids.size(), 2u);
}

TEST(ThreadPoolTest, ConcurrentCallersEachGetTheirOwnResult) {
  constexpr int kCallers = 4;
  constexpr int kRounds = 300;
  constexpr int64_t kCount = 1000;
  ThreadPool pool(3);
  std::vector<std::thread> callers;
  std::atomic<int> wrong{0};
  for (int caller = 0; caller < kCallers; ++caller) {
    callers.emplace_back([&pool, &wrong, caller] {
      std::vector<int64_t> out(kCount);
      for (int round = 0; round < kRounds; ++round) {
        const int64_t salt = caller * kRounds + round;
        pool.ParallelFor(kCount, 10, [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) out[i] = i + salt;
        });
        for (int64_t i = 0; i < kCount; ++i) wrong += out[i] != i + salt ? 1 : 0;
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(wrong.load(), 0);
}

// A caller finishes on its own while the only worker is held inside another caller's range.
TEST(ThreadPoolTest, BusyWorkersDoNotHoldUpACaller) {
  ThreadPool pool(2);
  absl::Notification release;
  std::atomic<int> inside{0};
  std::thread other([&] {
    pool.ParallelFor(2, 1, [&](int64_t, int64_t) {
      ++inside;
      release.WaitForNotification();
    });
  });
  while (inside.load() < 2) std::this_thread::yield();
  std::atomic<int64_t> sum{0};
  pool.ParallelFor(100, 1, [&](int64_t begin, int64_t end) { sum += end - begin; });
  EXPECT_EQ(sum.load(), 100);
  release.Notify();
  other.join();
}

TEST(ThreadPoolTest, IdleThreadsRest) {
  absl::Mutex mutex;
  std::set<pid_t> threads;
  ThreadPool pool(4);
  absl::Barrier* const barrier = new absl::Barrier(4);  // each thread has its part
  pool.ParallelFor(4, 1, [&](int64_t, int64_t) {
    {
      absl::MutexLock lock(&mutex);
      threads.insert(gettid());
    }
    if (barrier->Block()) delete barrier;
  });
  threads.erase(gettid());
  // One that spins runs, or would if it got a core. Looked at again and again: before it spins it
  // may rest for a moment.
  EXPECT_TRUE(warpcall::testing::Eventually([&] {
    for (int looks = 0; looks < 20; ++looks)
      if (!absl::c_all_of(threads, warpcall::testing::ThreadRests)) return false;
    return true;
  }));
}

TEST(ThreadPoolTest, GuestsGetWhatFallsToEachCallerAndIsLeft) {
  using Guest = ThreadPool::Guest;
  ThreadPool pool(8);
  EXPECT_EQ(Guest(&pool, {.max = 3}).threads(), 3);
  EXPECT_EQ(Guest(&pool, {.max = 100}).threads(), 8);
  {
    const Guest all(&pool, {.max = 8});
    EXPECT_EQ(Guest(&pool, {.max = 8}).threads(), 1);
    EXPECT_EQ(Guest(&pool, {.max = 8, .min = 5}).threads(), 5);
  }
  const Guest one(&pool, {.max = 1});
  const Guest half(&pool, {.max = 8});
  EXPECT_EQ(half.threads(), 4);
  EXPECT_EQ(Guest(&pool, {.max = 8}).threads(), 2);  // a third, and three are taken beside callers
  EXPECT_EQ(Guest(&pool, {.max = 1}).threads(), 1);
}

// Bodies of one ParallelFor on four threads, which are all in them before a guest comes and after
// it has gone; beside it they are counted.
class CountedBodies {
 public:
  void Run() {
    absl::MutexLock lock(&mutex_);
    ++inside_;
    changed_.SignalAll();
    if (!came_) {
      Await([this] { return came_ || (all_before_ = all_before_ || inside_ == 4); });
      Await([this] { return came_; });
    } else if (!has_counted_) {
      most_ = std::max(most_, ++beside_);
      mutex_.Unlock();
      std::this_thread::yield();
      mutex_.Lock();
      --beside_;
      ++counted_;
      changed_.SignalAll();
    } else {
      Await([this] { return stop_.IsSet() || inside_ == 4; });
      stop_.Set();
      changed_.SignalAll();
    }
    --inside_;
  }

  void WaitUntilAllAreIn() {
    absl::MutexLock lock(&mutex_);
    Await([this] { return all_before_; });
  }
  void GuestCame() {
    absl::MutexLock lock(&mutex_);
    came_ = true;
    changed_.SignalAll();
  }
  // Bodies that begin from then on wait for four to be in.
  void CountSome() {
    absl::MutexLock lock(&mutex_);
    Await([this] { return counted_ >= 500; });
    has_counted_ = true;
  }
  int most() const { return most_; }
  const StopFlag* stop() const { return &stop_; }

 private:
  template <typename Condition>
  void Await(Condition condition) {
    while (!condition()) changed_.Wait(&mutex_);
    changed_.SignalAll();
  }

  absl::Mutex mutex_;
  absl::CondVar changed_;
  SettableFlag stop_;
  bool all_before_ = false;
  bool came_ = false;
  bool has_counted_ = false;
  int inside_ = 0;
  int beside_ = 0;
  int most_ = 0;
  int64_t counted_ = 0;
};

TEST(ThreadPoolTest, ItsThreadsGiveWayToAGuestAndComeBack) {
  ThreadPool pool(4);
  CountedBodies bodies;
  std::thread caller([&] {
    pool.ParallelFor(
        int64_t{1} << 40, 1, [&](int64_t, int64_t) { bodies.Run(); }, bodies.stop());
  });
  bodies.WaitUntilAllAreIn();
  {
    const ThreadPool::Guest guest(&pool, {.max = 4});
    EXPECT_EQ(guest.threads(), 2);
    bodies.GuestCame();
    bodies.CountSome();
  }
  caller.join();  // once all four were in bodies again
  EXPECT_LE(bodies.most(), 2);
}

// Two callers are all that a pool of two has.
TEST(ThreadPoolTest, ItsThreadsGiveWayToCallers) {
  ThreadPool pool(2);
  absl::Mutex mutex;
  SettableFlag stop;
  std::set<std::thread::id> callers;
  int by_callers = 0;
  int by_the_other = 0;
  absl::CondVar came;
  const auto both = [&] { return callers.size() == 2; };
  const auto call = [&] {
    const std::thread::id caller = std::this_thread::get_id();
    const auto body = [&](int64_t, int64_t) {
      std::this_thread::yield();
      absl::MutexLock lock(&mutex);
      if (std::this_thread::get_id() == caller) {
        if (callers.insert(caller).second) came.SignalAll();
        while (!both()) came.Wait(&mutex);
        if (++by_callers == 1000) stop.Set();
      } else if (both()) {
        ++by_the_other;
      }
    };
    pool.ParallelFor(int64_t{1} << 40, 1, body, &stop);
  };
  std::thread other(call);
  call();
  other.join();
  EXPECT_LE(by_the_other, 1);  // its current piece
}

}  // namespace
}  // namespace warpcall::cpu
