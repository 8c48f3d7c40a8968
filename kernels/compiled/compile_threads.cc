#include "kernels/compiled/compile_threads.h"

#include <algorithm>
#include <utility>

#include "absl/time/time.h"
#include "proto/common/check.h"

namespace warpcall::compiled {
namespace {

// Interval at which a waiting thread checks its stop flag.
constexpr absl::Duration kStopLooks = absl::Milliseconds(10);

}  // namespace

bool AwaitUnlessStopped(const absl::Notification& done, const StopFlag* stop) {
  while (!done.WaitForNotificationWithTimeout(kStopLooks))
    if (IsSet(stop)) return false;
  return true;
}

CompileThreads::~CompileThreads() {
  std::vector<std::thread> threads;
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
    WARPCALL_DCHECK(tasks_.empty(), tasks_.size());
    threads.swap(threads_);
    news_.SignalAll();
  }
  for (std::thread& thread : threads) thread.join();
}

bool CompileThreads::Run(std::function<void()> work, const StopFlag* stop) {
  const auto task = std::make_shared<Task>(std::move(work));
  {
    absl::MutexLock lock(&mutex_);
    WARPCALL_DCHECK(!stopping_);
    tasks_.push_back(task);
    if (idle_ < tasks_.size() && threads_.size() < threads_max_)
      threads_.emplace_back([this] { Serve(); });
    news_.Signal();
  }
  if (AwaitUnlessStopped(task->done, stop)) return true;
  absl::MutexLock lock(&mutex_);
  // Removes the task unless a thread has already started it.
  tasks_.erase(std::remove(tasks_.begin(), tasks_.end(), task), tasks_.end());
  return false;
}

void CompileThreads::Serve() {
  absl::MutexLock lock(&mutex_);
  for (;;) {
    ++idle_;
    while (!stopping_ && tasks_.empty()) news_.Wait(&mutex_);
    --idle_;
    if (stopping_) return;
    const std::shared_ptr<Task> task = std::move(tasks_.front());
    tasks_.pop_front();
    mutex_.Unlock();
    task->work();
    task->done.Notify();
    mutex_.Lock();
  }
}

}  // namespace warpcall::compiled
