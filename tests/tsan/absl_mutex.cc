// Linked into tests under ThreadSanitizer. Debian's Abseil is not instrumented, so ThreadSanitizer
// does not see that absl::Mutex orders anything and reports a race on all data that a mutex guards.
// These definitions replace the library's: they report to ThreadSanitizer and call the library. The
// thread that unlocks calls the conditions of Await and LockWhen after its report: only Abseil's
// own conditions (Notification, Barrier), which are not instrumented either, may use them.
// absl::call_once cannot be replaced so: code that waits uses std::call_once.
#include <dlfcn.h>
#include <sanitizer/tsan_interface.h>

#include <cstdio>
#include <cstdlib>

#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"

namespace {

template <typename Function>
Function* Real(const char* symbol) {
  void* const found = dlsym(RTLD_NEXT, symbol);
  if (found == nullptr) {
    std::fprintf(stderr, "%s: not in the shared library of Abseil\n", symbol);
    std::abort();
  }
  return reinterpret_cast<Function*>(found);
}

void Released(absl::Mutex* mutex) {
  __tsan_mutex_pre_unlock(mutex, 0);
  __tsan_mutex_post_unlock(mutex, 0);
}

void Acquired(absl::Mutex* mutex) {
  __tsan_mutex_pre_lock(mutex, 0);
  __tsan_mutex_post_lock(mutex, 0, 0);
}

// Its deadlock detector keeps its books under a lock of its own that ThreadSanitizer cannot see;
// and ThreadSanitizer looks for deadlocks itself.
[[maybe_unused]] const bool detector_off = [] {
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  return true;
}();

}  // namespace

namespace absl {
ABSL_NAMESPACE_BEGIN

void Mutex::Lock() {
  static const auto real = Real<void(Mutex*)>("_ZN4absl7debian35Mutex4LockEv");
  real(this);
  Acquired(this);
}

bool Mutex::TryLock() {
  static const auto real = Real<bool(Mutex*)>("_ZN4absl7debian35Mutex7TryLockEv");
  const bool locked = real(this);
  if (locked) Acquired(this);
  return locked;
}

void Mutex::Unlock() {
  static const auto real = Real<void(Mutex*)>("_ZN4absl7debian35Mutex6UnlockEv");
  Released(this);
  real(this);
}

void Mutex::Await(const Condition& condition) {
  static const auto real =
      Real<void(Mutex*, const Condition&)>("_ZN4absl7debian35Mutex5AwaitERKNS0_9ConditionE");
  Released(this);
  real(this, condition);
  Acquired(this);
}

void Mutex::LockWhen(const Condition& condition) {
  static const auto real =
      Real<void(Mutex*, const Condition&)>("_ZN4absl7debian35Mutex8LockWhenERKNS0_9ConditionE");
  real(this, condition);
  Acquired(this);
}

bool Mutex::LockWhenWithTimeout(const Condition& condition, Duration timeout) {
  static const auto real = Real<bool(Mutex*, const Condition&, Duration)>(
      "_ZN4absl7debian35Mutex19LockWhenWithTimeoutERKNS0_9ConditionENS0_8DurationE");
  const bool met = real(this, condition, timeout);
  Acquired(this);
  return met;
}

void CondVar::Wait(Mutex* mutex) {
  static const auto real =
      Real<void(CondVar*, Mutex*)>("_ZN4absl7debian37CondVar4WaitEPNS0_5MutexE");
  Released(mutex);
  real(this, mutex);
  Acquired(mutex);
}

bool CondVar::WaitWithDeadline(Mutex* mutex, Time deadline) {
  static const auto real = Real<bool(CondVar*, Mutex*, Time)>(
      "_ZN4absl7debian37CondVar16WaitWithDeadlineEPNS0_5MutexENS0_4TimeE");
  Released(mutex);
  const bool timed_out = real(this, mutex, deadline);
  Acquired(mutex);
  return timed_out;
}

bool CondVar::WaitWithTimeout(Mutex* mutex, Duration timeout) {
  return WaitWithDeadline(mutex, Now() + timeout);
}

// Waiting for a past notification takes no lock.
void Notification::Notify() {
  static const auto real = Real<void(Notification*)>("_ZN4absl7debian312Notification6NotifyEv");
  __tsan_release(this);
  real(this);
}

void Notification::WaitForNotification() const {
  static const auto real =
      Real<void(const Notification*)>("_ZNK4absl7debian312Notification19WaitForNotificationEv");
  real(this);
  __tsan_acquire(const_cast<Notification*>(this));
}

bool Notification::WaitForNotificationWithTimeout(Duration timeout) const {
  static const auto real = Real<bool(const Notification*, Duration)>(
      "_ZNK4absl7debian312Notification30WaitForNotificationWithTimeoutENS0_8DurationE");
  const bool notified = real(this, timeout);
  if (notified) __tsan_acquire(const_cast<Notification*>(this));
  return notified;
}

ABSL_NAMESPACE_END
}  // namespace absl
