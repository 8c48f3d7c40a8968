// The streams that are open, to be ended all at once when the drain is over: one whose client sends
// nothing more would never end by itself.
#pragma once

#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"

namespace warpcall {

// A call that goes on as long as its client likes.
class OpenStream {
 public:
  // Keeps the call from being destroyed until EndAndRelease, after which it may be.
  virtual void Hold() = 0;
  // Ends with `status` as soon as nothing of it is under way.
  virtual void EndAndRelease(const absl::Status& status) = 0;

 protected:
  ~OpenStream() = default;
};

// Thread-safe.
class OpenStreams {
 public:
  void Add(OpenStream* call);
  // The call may be destroyed from then on, unless EndAll holds it.
  void Remove(OpenStream* call);
  // Each ends with `status` as soon as nothing of it is under way. Returns how many there are.
  int64_t EndAll(const absl::Status& status);

 private:
  absl::Mutex mutex_;
  absl::flat_hash_set<OpenStream*> calls_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace warpcall
