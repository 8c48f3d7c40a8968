// Which rows turned out not to take problems that `supports` lets through, so that nobody is given
// such a row again.
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

// Whether a job that ended so was refused by its row, which does not take the problem.
bool IsPlanRefusal(const absl::Status& status);

// Of one device. Thread-safe.
class PlanRefusals {
 public:
  // True for the first of the row.
  bool Note(const Row& row, const Problem& problem, const absl::Status& why);
  // OK, or why the row does not take the problem.
  absl::Status Check(const Row& row, const Problem& problem) const;

 private:
  // As many as the device keeps plans. A row whose refusal is forgotten refuses anew.
  static constexpr size_t kRefusalsMax = 1024;

  std::atomic<bool> any_{false};  // most servers have none: asking costs them nothing
  mutable absl::Mutex mutex_;
  absl::flat_hash_set<int> rows_ ABSL_GUARDED_BY(mutex_);  // Row::ids of whom any was noted
  mutable LruCache<std::pair<int, Problem>, absl::Status> known_ ABSL_GUARDED_BY(mutex_){
      kRefusalsMax};
};

}  // namespace warpcall
