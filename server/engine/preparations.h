// For which problems a device has the plans of rows that are slow to plan, so that only those who
// ask for the same wait while one is made: for the search of an algorithm, or a compiler.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "kernels/common/lru_cache.h"
#include "kernels/registry.h"

namespace warpcall {

// Of one row for one problem, on one device.
struct Preparation {
  // Once true, always true. Set by the scheduler, under its lock.
  std::atomic<bool> done{false};
  // Whether a lane is at it: the scheduler's, and guarded by its lock.
  bool in_progress = false;
};

// Of one device. Thread-safe.
class Preparations {
 public:
  // Null when `row` is planned in no time. `restarts`: how often the device was started again, with
  // which it has forgotten all.
  std::shared_ptr<Preparation> Of(const Row& row, const Problem& problem, int64_t restarts);

 private:
  // As many as the device keeps plans. A job that finds its preparation forgotten there, though
  // done here, prepares on its own lane.
  static constexpr size_t kProblemsMax = 1024;

  struct Key {
    int row;
    int64_t restarts;
    Problem problem;

    bool operator==(const Key& other) const = default;

    template <typename Hash>
    friend Hash AbslHashValue(Hash state, const Key& key) {
      return Hash::combine(std::move(state), key.row, key.restarts, key.problem);
    }
  };

  absl::Mutex mutex_;
  LruCache<Key, std::shared_ptr<Preparation>> known_ ABSL_GUARDED_BY(mutex_){kProblemsMax};
};

}  // namespace warpcall
