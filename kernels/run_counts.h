// Counts how often plans run on a device, whichever of its streams run them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/inlined_vector.h"
#include "absl/synchronization/mutex.h"
#include "kernels/plan.h"

namespace warpcall {

// Thread-safe. Remembers the plans that ran last.
class RunCounts {
 public:
  static constexpr size_t kPlansMax = 256;

  // Adds a run of `plan` with its resident inputs at these places, null for others. Returns the
  // number of such runs, this one included.
  int Add(const Plan& plan, const absl::InlinedVector<const void*, 2>& residents);

 private:
  struct Entry {
    const Plan* plan;  // only compared
    absl::InlinedVector<const void*, 2> residents;
    int runs;
    uint64_t last_used;
  };

  absl::Mutex mutex_;
  std::vector<Entry> entries_ ABSL_GUARDED_BY(mutex_);
  uint64_t now_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace warpcall
