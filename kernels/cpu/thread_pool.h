// A fixed set of threads that CPU kernels share: ParallelFor splits a range over them and the
// caller.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/functional/function_ref.h"
#include "kernels/op.h"

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
  // long but the last, and returns when all have. Several threads may call it at once; body must
  // not call it.
  void ParallelFor(int64_t count, int64_t grain, absl::FunctionRef<void(int64_t, int64_t)> body);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Raises the calling thread's nice value to `nice`, if it is lower.
void GiveWay(int nice);

// The pool that the CPU device puts into every launch.
inline ThreadPool& PoolOf(const LaunchContext& context) {
  return *static_cast<ThreadPool*>(context.stream);
}

}  // namespace warpcall::cpu
