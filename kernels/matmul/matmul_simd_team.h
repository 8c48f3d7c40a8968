// Shares out simd_tiled's work: threads take indices from a counter, and each owns a slot of the
// workspace.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "absl/functional/function_ref.h"
#include "kernels/cpu/thread_pool.h"
#include "proto/common/check.h"

namespace warpcall::matmul {

class Team {
 public:
  // `slots` of the threads at most.
  Team(const cpu::Workers& workers, int slots) : workers_(workers), slots_(slots) {
    WARPCALL_DCHECK(slots > 0, slots);
  }
  // The calling thread alone.
  Team Alone() const { return Team(workers_, 1); }

  int slots() const { return slots_; }
  const StopFlag* stop() const { return workers_.stop(); }

  // Calls body(slot, index) for every index in [0, count) and returns when all calls have; calls at
  // one time have distinct slots in [0, slots()). The stop flag ends it early.
  void ForEach(int64_t count, absl::FunctionRef<void(int, int64_t)> body) const {
    std::atomic<int64_t> next{0};
    const auto work = [&](int slot) {
      for (int64_t done = 1; !(done % kIndicesPerLook == 0 && IsSet(stop())); ++done) {
        const int64_t index = next.fetch_add(1, std::memory_order_relaxed);
        if (index >= count) return;
        body(slot, index);
      }
    };
    if (slots_ == 1 || count <= 1) return work(0);
    workers_.ParallelFor(std::min<int64_t>(slots_, count), 1, [&](int64_t begin, int64_t end) {
      for (int64_t slot = begin; slot < end; ++slot) work(static_cast<int>(slot));
    });
  }

 private:
  // The longest calls take some milliseconds, and a look too much for the shortest.
  static constexpr int64_t kIndicesPerLook = 4;

  cpu::Workers workers_;
  int slots_;
};

}  // namespace warpcall::matmul
