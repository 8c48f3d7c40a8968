// Runs events one after the other, on whichever thread brings the first; no lock is held meanwhile,
// so an event may call what calls back.
#pragma once

#include <deque>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/synchronization/mutex.h"
#include "proto/common/check.h"

namespace warpcall {

// Thread-safe. An event may destroy whoever owns the strand, and is then the last to run.
class Strand {
 public:
  using Event = absl::AnyInvocable<void()>;

  void Post(Event event) {
    WARPCALL_DCHECK(event != nullptr);
    const std::shared_ptr<State> state = state_;  // may outlive this
    absl::MutexLock lock(&state->mutex);
    state->events.push_back(std::move(event));
    if (std::exchange(state->running, true)) return;
    while (!state->events.empty()) {
      Event next = std::move(state->events.front());
      state->events.pop_front();
      state->mutex.Unlock();
      next();
      next = nullptr;
      state->mutex.Lock();
    }
    state->running = false;
  }

 private:
  struct State {
    absl::Mutex mutex;
    std::deque<Event> events ABSL_GUARDED_BY(mutex);
    bool running ABSL_GUARDED_BY(mutex) = false;
  };

  const std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace warpcall
