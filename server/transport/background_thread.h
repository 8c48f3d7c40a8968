// Work that gives way to every call that is being served: answers to calls that the queue has no
// room for, messages to inflate, digests of tensors, lists of them. On gRPC's few threads either
// would hold up everybody else.
#pragma once

#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/synchronization/mutex.h"

namespace warpcall {

// One thread of low priority, which works in the order of Add. Thread-safe. Unbounded by itself:
// each entry belongs to a call, and connections have a limited number of those.
class BackgroundThread {
 public:
  BackgroundThread();
  // Does all work that was added.
  ~BackgroundThread();
  BackgroundThread(const BackgroundThread&) = delete;
  BackgroundThread& operator=(const BackgroundThread&) = delete;

  void Add(absl::AnyInvocable<void()> work);

 private:
  void Loop();

  absl::Mutex mutex_;
  absl::CondVar added_;
  std::vector<absl::AnyInvocable<void()>> work_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last: runs on all of the above
};

}  // namespace warpcall
