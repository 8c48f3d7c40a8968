// Answers calls that are refused because the queue is full, behind everyone who is served: when a
// burst is refused where it arrives, on gRPC's few threads, all others wait until it is.
#pragma once

#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/synchronization/mutex.h"

namespace warpcall {

// Thread-safe. Holds no more than there are calls, of which each connection may have a limited
// number.
class Refusals {
 public:
  Refusals();
  // Gives all answers that were added.
  ~Refusals();
  Refusals(const Refusals&) = delete;
  Refusals& operator=(const Refusals&) = delete;

  // `answer` is called soon, on a thread that gives way to others.
  void Add(absl::AnyInvocable<void()> answer);

 private:
  void Loop();

  absl::Mutex mutex_;
  absl::CondVar added_;
  std::vector<absl::AnyInvocable<void()>> answers_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last: runs on all of the above
};

}  // namespace warpcall
