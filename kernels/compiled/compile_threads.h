// The few threads that compile, so that a server has no more of them at work than it can spare.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "kernels/op.h"
#include "proto/common/check.h"

namespace warpcall::compiled {

// Waits for `done`, or until `stop` is set (null: never), when it is false.
bool AwaitUnlessStopped(const absl::Notification& done, const StopFlag* stop);

// Thread-safe. Threads are started when there is work for them, and stay.
class CompileThreads {
 public:
  // REQUIRES: threads_max > 0.
  explicit CompileThreads(size_t threads_max) : threads_max_(threads_max) {
    WARPCALL_DCHECK(threads_max > 0);
  }
  // REQUIRES: no Run is under way.
  ~CompileThreads();
  CompileThreads(const CompileThreads&) = delete;
  CompileThreads& operator=(const CompileThreads&) = delete;

  // Returns true when `work` has run on one of the threads, or false when `stop` was set before;
  // `work` then may run later. First come, first served.
  bool Run(std::function<void()> work, const StopFlag* stop);

 private:
  struct Task {
    explicit Task(std::function<void()> work_in) : work(std::move(work_in)) {}
    const std::function<void()> work;
    absl::Notification done;
  };

  void Serve();

  const size_t threads_max_;
  absl::Mutex mutex_;
  absl::CondVar news_;  // a task, or the end
  std::deque<std::shared_ptr<Task>> tasks_ ABSL_GUARDED_BY(mutex_);
  size_t idle_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace warpcall::compiled
