// Tracks the problems for which a device has plans of implementations that are slow to plan, by
// search or compiler. Only requests for the same problem wait while a plan is made.
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

// State of one implementation for one problem on one device.
struct Preparation {
  // Once true, always true. The scheduler sets it under its lock.
  std::atomic<bool> done{false};
  // True while a lane prepares. Guarded by the scheduler's lock.
  bool in_progress = false;
};

// The preparations of one device. Thread-safe.
class Preparations {
 public:
  // Returns null when `row` is planned in no time, or each step of a graph is. `restarts` is the
  // number of times that the device was restarted; each restart loses all preparations.
  std::shared_ptr<Preparation> Of(const Row& row, const Problem& problem, int64_t restarts);

 private:
  // The number of plans that the device keeps. A job whose preparation is done here, yet whose plan
  // the device has dropped, prepares on its own lane.
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
