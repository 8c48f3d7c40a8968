// Notices a launch that does not end.
#pragma once

#include <cstdint>
#include <functional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "proto/common/steady_wait.h"

namespace warpcall::judge {

// Used by one thread; a second one watches.
class LaunchWatch {
 public:
  // `expired` is called on the watching thread, once at most, where a launch has not ended in time.
  explicit LaunchWatch(std::function<void()> expired);
  ~LaunchWatch();
  LaunchWatch(const LaunchWatch&) = delete;
  LaunchWatch& operator=(const LaunchWatch&) = delete;

  // What begins has to end within `time`.
  void Begin(absl::Duration time);
  void End();
  // The time between the two does not count.
  void Pause();
  void Resume();

 private:
  void Watch();

  const std::function<void()> expired_;
  absl::Mutex mutex_;
  SteadyCondVar changed_;
  SteadyTime until_ ABSL_GUARDED_BY(mutex_) = SteadyTime::max();
  absl::Duration paused_left_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last: runs on all of the above
};

// A pause for as long as it lives.
class WatchPause {
 public:
  explicit WatchPause(LaunchWatch* watch) : watch_(watch) {
    if (watch_ != nullptr) watch_->Pause();
  }
  ~WatchPause() {
    if (watch_ != nullptr) watch_->Resume();
  }
  WatchPause(const WatchPause&) = delete;
  WatchPause& operator=(const WatchPause&) = delete;

 private:
  LaunchWatch* const watch_;
};

}  // namespace warpcall::judge
