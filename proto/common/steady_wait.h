// Waits by a clock that nobody sets (std::chrono::steady_clock). absl::CondVar and
// absl::Notification use the wall clock, even for a duration: if that clock is set back by an hour,
// they wait an hour longer.
#pragma once

#include <chrono>
#include <condition_variable>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace warpcall {

using SteadyTime = std::chrono::steady_clock::time_point;

// The end of time if `timeout` is out of range, as absl::InfiniteDuration is.
inline SteadyTime SteadyAfter(absl::Duration timeout) {
  const SteadyTime now = std::chrono::steady_clock::now();
  if (timeout >= absl::FromChrono(SteadyTime::max() - now)) return SteadyTime::max();
  return now + absl::ToChronoNanoseconds(timeout);
}

// Negative once `end` has passed.
inline absl::Duration UntilSteady(SteadyTime end) {
  return absl::FromChrono(end - std::chrono::steady_clock::now());
}

// Like absl::CondVar: wake-ups may be spurious, and the mutex guards the awaited state.
class SteadyCondVar {
 public:
  void Signal() { condition_.notify_one(); }
  void SignalAll() { condition_.notify_all(); }

  void Wait(absl::Mutex* mutex) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    Held held{mutex};
    condition_.wait(held);
  }
  // Returns true if `end` has passed.
  bool WaitUntil(absl::Mutex* mutex, SteadyTime end) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    Held held{mutex};
    return condition_.wait_until(held, end) == std::cv_status::timeout;
  }

 private:
  // A lock as std::condition_variable_any requires it.
  struct Held {
    absl::Mutex* mutex;
    void lock() ABSL_NO_THREAD_SAFETY_ANALYSIS { mutex->Lock(); }
    void unlock() ABSL_NO_THREAD_SAFETY_ANALYSIS { mutex->Unlock(); }
  };

  std::condition_variable_any condition_;
};

// Like absl::Notification.
class SteadyNotification {
 public:
  void Notify() {
    absl::MutexLock lock(&mutex_);
    notified_ = true;
    changed_.SignalAll();
  }
  // Returns true if it was notified within `timeout`.
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
