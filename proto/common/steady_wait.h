// Waits by a clock that nobody sets (std::chrono::steady_clock). Those of absl::CondVar and
// absl::Notification go by the wall clock, also where they are given a duration: one that was set
// back by an hour keeps them for an hour longer.
#pragma once

#include <chrono>
#include <condition_variable>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace warpcall {

using SteadyTime = std::chrono::steady_clock::time_point;

// The end of time for what is too long to be told, absl::InfiniteDuration among it.
inline SteadyTime SteadyAfter(absl::Duration timeout) {
  const SteadyTime now = std::chrono::steady_clock::now();
  if (timeout >= absl::FromChrono(SteadyTime::max() - now)) return SteadyTime::max();
  return now + absl::ToChronoNanoseconds(timeout);
}

// Negative once it has passed.
inline absl::Duration UntilSteady(SteadyTime end) {
  return absl::FromChrono(end - std::chrono::steady_clock::now());
}

// As absl::CondVar: wake-ups may be spurious, and the state that is waited for is the mutex's.
class SteadyCondVar {
 public:
  void Signal() { condition_.notify_one(); }
  void SignalAll() { condition_.notify_all(); }

  void Wait(absl::Mutex* mutex) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    Held held{mutex};
    condition_.wait(held);
  }
  // Returns whether `end` has passed.
  bool WaitUntil(absl::Mutex* mutex, SteadyTime end) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    Held held{mutex};
    return condition_.wait_until(held, end) == std::cv_status::timeout;
  }

 private:
  // What std::condition_variable_any calls a lock.
  struct Held {
    absl::Mutex* mutex;
    void lock() ABSL_NO_THREAD_SAFETY_ANALYSIS { mutex->Lock(); }
    void unlock() ABSL_NO_THREAD_SAFETY_ANALYSIS { mutex->Unlock(); }
  };

  std::condition_variable_any condition_;
};

// As absl::Notification.
class SteadyNotification {
 public:
  void Notify() {
    absl::MutexLock lock(&mutex_);
    notified_ = true;
    changed_.SignalAll();
  }
  // Returns whether it has been notified by then.
  bool WaitFor(absl::Duration timeout) {
    const SteadyTime end = SteadyAfter(timeout);
    absl::MutexLock lock(&mutex_);
    while (!notified_ && !changed_.WaitUntil(&mutex_, end)) {
    }
    return notified_;
  }

 private:
  absl::Mutex mutex_;
  SteadyCondVar changed_;
  bool notified_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace warpcall
