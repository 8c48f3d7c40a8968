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

 private:
  void Watch();

  const std::function<void()> expired_;
  absl::Mutex mutex_;
  SteadyCondVar changed_;
  SteadyTime until_ ABSL_GUARDED_BY(mutex_) = SteadyTime::max();
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last: runs on all of the above
};

}  // namespace warpcall::judge
