#include "server/judge/launch_watch.h"

#include <utility>

namespace warpcall::judge {

LaunchWatch::LaunchWatch(std::function<void()> expired)
    : expired_(std::move(expired)), thread_([this] { Watch(); }) {}

LaunchWatch::~LaunchWatch() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
    changed_.Signal();
  }
  thread_.join();
}

void LaunchWatch::Begin(absl::Duration time) {
  absl::MutexLock lock(&mutex_);
  until_ = SteadyAfter(time);
  changed_.Signal();
}

void LaunchWatch::End() {
  absl::MutexLock lock(&mutex_);
  until_ = SteadyTime::max();
}

void LaunchWatch::Pause() {
  absl::MutexLock lock(&mutex_);
  paused_left_ = UntilSteady(until_);
  until_ = SteadyTime::max();
}

void LaunchWatch::Resume() {
  absl::MutexLock lock(&mutex_);
  until_ = SteadyAfter(paused_left_);
  changed_.Signal();
}

void LaunchWatch::Watch() {
  absl::MutexLock lock(&mutex_);
  while (!stopping_) {
    if (UntilSteady(until_) <= absl::ZeroDuration()) {
      // Nothing begins or ends meanwhile: what it says is the last word.
      expired_();
      return;
    }
    if (until_ == SteadyTime::max())
      changed_.Wait(&mutex_);
    else
      changed_.WaitUntil(&mutex_, until_);
  }
}

}  // namespace warpcall::judge
