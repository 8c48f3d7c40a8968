// The ExecuteStream calls that are open, to be ended all at once when the drain is over: one whose
// client sends nothing more would never end by itself.
#pragma once

#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"

namespace warpcall {

class ExecuteStreamCall;

// Thread-safe.
class OpenStreams {
 public:
  void Add(ExecuteStreamCall* call);
  // The call may be destroyed from then on, unless EndAll holds it.
  void Remove(ExecuteStreamCall* call);
  // Each ends with `status` as soon as nothing of it is under way. Returns how many there are.
  int64_t EndAll(const absl::Status& status);

 private:
  absl::Mutex mutex_;
  absl::flat_hash_set<ExecuteStreamCall*> calls_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace warpcall
