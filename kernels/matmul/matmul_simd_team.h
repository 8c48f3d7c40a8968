// How simd_tiled shares work: threads take indices from a counter, and each owns a slot of the
// workspace.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "absl/functional/function_ref.h"
#include "kernels/cpu/thread_pool.h"

namespace warpcall::matmul {

class Team {
 public:
  // The calling thread alone.
  static Team Alone() { return Team(nullptr, 1); }
  // `slots` threads of `pool` at most.
  Team(cpu::ThreadPool* pool, int slots) : pool_(pool), slots_(slots) {}

  int slots() const { return slots_; }

  // Calls body(slot, index) for every index in [0, count) and returns when all calls have; calls at
  // one time have distinct slots in [0, slots()).
  void ForEach(int64_t count, absl::FunctionRef<void(int, int64_t)> body) const {
    if (slots_ == 1 || count <= 1) {
      for (int64_t index = 0; index < count; ++index) body(0, index);
      return;
    }
    std::atomic<int64_t> next{0};
    pool_->ParallelFor(std::min<int64_t>(slots_, count), 1, [&](int64_t begin, int64_t end) {
      for (int64_t slot = begin; slot < end; ++slot)
        for (int64_t index; (index = next.fetch_add(1, std::memory_order_relaxed)) < count;)
          body(static_cast<int>(slot), index);
    });
  }

 private:
  cpu::ThreadPool* pool_;
  int slots_;
};

}  // namespace warpcall::matmul
