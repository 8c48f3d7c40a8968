// The server's kernels, asked for when first wanted. Internal to the library.
#pragma once

#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "client/cpp/rpc/connections.h"
#include "warpcall/client.h"

namespace warpcall::client {

// Thread-safe.
class KernelCache {
 public:
  // `connections` outlives it.
  explicit KernelCache(const Connections* connections) : connections_(connections) {}

  // Null when the server has no such kernel, or did not say in time which it has; then the next
  // call asks again, unless the server knows no such question. Valid as long as the cache. Takes
  // half of what the call may take at most, and nothing once it is cancelled.
  const KernelInfo* Find(absl::string_view name, const CallTerms& call);

 private:
  enum class State { kUnknown, kAsking, kSettled };

  bool NobodyAsks() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return state_ != State::kAsking; }
  const KernelInfo* Lookup(absl::string_view name) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Connections* const connections_;
  absl::Mutex mutex_;
  State state_ ABSL_GUARDED_BY(mutex_) = State::kUnknown;
  // Set at most once.
  std::vector<KernelInfo> kernels_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace warpcall::client
