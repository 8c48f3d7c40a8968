#include "client/cpp/calls/workers.h"

#include <algorithm>
#include <atomic>
#include <system_error>
#include <utility>

#include "absl/synchronization/blocking_counter.h"
#include "proto/common/check.h"

namespace warpcall::client {

struct Workers::Batch {
  Batch(int tasks, absl::FunctionRef<void(int)> to_call)
      : count(tasks), task(to_call), unfinished(tasks) {}

  // Works as long as there are tasks that nobody has begun. Once all have been begun `task` is not
  // touched any more, so a worker that comes late finds nothing to do and does no harm.
  void Work() {
    for (int i = next.fetch_add(1); i < count; i = next.fetch_add(1)) {
      task(i);
      unfinished.DecrementCount();
    }
  }

  const int count;
  const absl::FunctionRef<void(int)> task;
  std::atomic<int> next{0};
  absl::BlockingCounter unfinished;
};

Workers::~Workers() {
  std::vector<std::thread> threads;
  {
    absl::MutexLock lock(&mutex_);
    ending_ = true;
    WARPCALL_DCHECK(waiting_.empty(), waiting_.size());
    threads.swap(threads_);
  }
  for (std::thread& thread : threads) thread.join();
}

void Workers::Run(int count, absl::FunctionRef<void(int)> task) {
  WARPCALL_DCHECK(count >= 0, count);
  const auto batch = std::make_shared<Batch>(count, task);
  {
    absl::MutexLock lock(&mutex_);
    for (int helper = 1; helper < count; ++helper) waiting_.push_back(batch);
    StartThreads();
  }
  batch->Work();
  batch->unfinished.Wait();
  absl::MutexLock lock(&mutex_);
  waiting_.erase(std::remove(waiting_.begin(), waiting_.end(), batch), waiting_.end());
}

void Workers::StartThreads() {
  while (idle_ < static_cast<int>(waiting_.size()) &&
         static_cast<int>(threads_.size()) < threads_max_) {
    try {
      threads_.emplace_back([this] { Serve(); });
    } catch (const std::system_error&) {
      return;  // no more threads to be had: the callers work alone
    }
    ++idle_;
  }
}

void Workers::Serve() {
  while (true) {
    std::shared_ptr<Batch> batch;
    {
      absl::MutexLock lock(&mutex_);
      mutex_.Await(absl::Condition(this, &Workers::HasWorkOrEnds));
      if (ending_) return;
      batch = std::move(waiting_.front());
      waiting_.pop_front();
      --idle_;
    }
    batch->Work();
    absl::MutexLock lock(&mutex_);
    ++idle_;
  }
}

}  // namespace warpcall::client
