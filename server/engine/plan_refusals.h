// Remembers which implementations refused problems that `supports` lets through, so that no request
// gets such an implementation again.
#pragma once

#include <atomic>
#include <cstddef>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "kernels/common/lru_cache.h"
#include "kernels/registry.h"

namespace warpcall {

// True if `status` says that a job's implementation does not accept the problem.
bool IsPlanRefusal(const absl::Status& status);

// The refusals of one device. Thread-safe.
class PlanRefusals {
 public:
  // Records a refusal. Returns true for the implementation's first.
  bool Add(const Row& row, const Problem& problem, const absl::Status& why);
  // OK, or the reason why the implementation does not accept the problem.
  absl::Status Check(const Row& row, const Problem& problem) const;

 private:
  // The number of plans that the device keeps. An implementation refuses a forgotten problem again.
  static constexpr size_t kRefusalsMax = 1024;

  std::atomic<bool> any_{false};  // most servers have none: Check costs them nothing
  mutable absl::Mutex mutex_;
  absl::flat_hash_set<int> rows_ ABSL_GUARDED_BY(mutex_);  // Row::ids with any refusal
  mutable LruCache<std::pair<int, Problem>, absl::Status> known_ ABSL_GUARDED_BY(mutex_){
      kRefusalsMax};
};

}  // namespace warpcall
