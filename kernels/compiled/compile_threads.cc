#include "kernels/compiled/compile_threads.h"

#include <utility>

namespace warpcall::compiled {

CompileThreads::~CompileThreads() {
  std::vector<std::thread> threads;
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
    threads.swap(threads_);
  }
  for (std::thread& thread : threads) thread.join();
}

void CompileThreads::Run(absl::FunctionRef<void()> work) {
  Task task = {work};
  absl::MutexLock lock(&mutex_);
  tasks_.push_back(&task);
  if (idle_ < tasks_.size() && threads_.size() < threads_max_)
    threads_.emplace_back([this] { Serve(); });
  mutex_.Await(absl::Condition(&task.done));
}

void CompileThreads::Serve() {
  absl::MutexLock lock(&mutex_);
  for (;;) {
    ++idle_;
    mutex_.Await(absl::Condition(this, &CompileThreads::HasNews));
    --idle_;
    if (stopping_) return;
    Task* const task = tasks_.front();
    tasks_.pop_front();
    mutex_.Unlock();
    task->work();
    mutex_.Lock();
    task->done = true;
  }
}

}  // namespace warpcall::compiled
