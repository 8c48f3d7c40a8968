// A few threads that help callers with work in parts. Internal to the library.
#pragma once

#include <deque>
#include <memory>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/synchronization/mutex.h"
#include "proto/common/check.h"

namespace warpcall::client {

// Thread-safe.
class Workers {
 public:
  // Threads start when work first wants them, `threads_max` at most.
  explicit Workers(int threads_max) : threads_max_(threads_max) {
    WARPCALL_DCHECK(threads_max >= 0, threads_max);
  }
  // REQUIRES: no Run is going on.
  ~Workers();
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  // Calls task(0) ... task(count - 1), begun in this order, each on this thread or on a worker that
  // has nothing else to do, and returns when all have returned. This thread alone does all that no
  // worker takes, so callers never wait for each other.
  void Run(int count, absl::FunctionRef<void(int)> task);

 private:
  struct Batch;

  // Starts threads for what waits, as far as allowed and possible.
  void StartThreads() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Serve();
  bool HasWorkOrEnds() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return ending_ || !waiting_.empty();
  }

  const int threads_max_;
  absl::Mutex mutex_;
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  int idle_ ABSL_GUARDED_BY(mutex_) = 0;
  // A batch stands here once for each worker that it could use.
  std::deque<std::shared_ptr<Batch>> waiting_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::thread> threads_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace warpcall::client
