// A fixed set of threads that CPU kernels share: ParallelFor splits a range over them and the
// caller. Libraries that bring threads of their own take their share of the same number.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/functional/function_ref.h"
#include "kernels/op.h"
#include "proto/common/check.h"

namespace warpcall::cpu {

class ThreadPool {
 public:
  // `threads` >= 1 counts the calling thread: 1 starts none. `nice` is what those that are started
  // are set to: 0 to 19, the more the sooner they give way to others.
  explicit ThreadPool(int threads, int nice = 0);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const;

  // Calls body(begin, end) on disjoint ranges that cover [0, count), each a multiple of `grain`
  // long but the last, and returns when all calls have. Several threads may call it at once; body
  // must not call it. Choose a grain of 1, or one just worth waking a thread for, some 20 us.
  // `stop`, which may be null, is checked before each range of 32 grains at most, and before each
  // index if the grain is 1; once it is set no more ranges begin.
  void ParallelFor(int64_t count, int64_t grain, absl::FunctionRef<void(int64_t, int64_t)> body,
                   const StopFlag* stop = nullptr);

  // A caller of a library whose threads count as the pool's while the guest lives.
  class Guest {
   public:
    // Number of threads, >= 1, with the caller's.
    struct Wish {
      int max;
      int min = 1;
    };

    // Gets an equal share of the threads among the callers, or less if others hold more, within its
    // wish. Surplus threads of the pool leave once they have finished the chunks they have begun.
    Guest(ThreadPool* pool, const Wish& wish);
    ~Guest();
    Guest(const Guest&) = delete;
    Guest& operator=(const Guest&) = delete;

    int threads() const { return threads_; }

   private:
    ThreadPool* const pool_;
    int threads_;
  };

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Raises the calling thread's nice value to `nice`, if it is lower.
void LowerPriority(int nice);

// The resources of one launch on the CPU device: the threads of the device's pool, until the stop
// flag is set.
class Workers {
 public:
  Workers(ThreadPool* pool, const StopFlag* stop) : pool_(pool), stop_(stop) {}

  const StopFlag* stop() const { return stop_; }
  void ParallelFor(int64_t count, int64_t grain,
                   absl::FunctionRef<void(int64_t, int64_t)> body) const {
    pool_->ParallelFor(count, grain, body, stop_);
  }

 private:
  ThreadPool* pool_;
  const StopFlag* stop_;
};

inline Workers WorkersOf(const LaunchContext& context) {
  WARPCALL_DCHECK(context.stream != nullptr);
  return {static_cast<ThreadPool*>(context.stream), context.stop};
}

// Elements, terms or products between two looks at a stop flag: some 25 ms where each misses the
// caches.
inline constexpr int64_t kElementsPerLook = 1 << 18;

// Calls body(begin, end) on one range after the other of [0, count), kElementsPerLook long but for
// the last, and looks at `stop` between them. False when it was set, and the rest left.
template <typename Body>
bool ForRanges(int64_t count, const StopFlag* stop, const Body& body) {
  for (int64_t begin = 0; begin < count; begin += kElementsPerLook) {
    if (begin > 0 && IsSet(stop)) return false;
    body(begin, std::min(begin + kElementsPerLook, count));
  }
  return true;
}

}  // namespace warpcall::cpu
