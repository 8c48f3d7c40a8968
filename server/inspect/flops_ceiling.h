// What the CPU's arithmetic gives at best in float32: the ceiling that kernels bound by it are
// measured by.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/cpu/thread_pool.h"

namespace warpcall::inspect {

class FlopsCeiling {
 public:
  // Multiply-adds on so many threads, as urgent as the caller.
  explicit FlopsCeiling(int threads) : pool_(threads) {}

  // Half a millisecond of them.
  void Sample();
  // By a fast sample (p10), since whatever else the machine does only adds to it; 0 before there is
  // one.
  double flops_per_second() const;
  int64_t samples() const { return static_cast<int64_t>(ns_per_flop_.size()); }

 private:
  cpu::ThreadPool pool_;
  std::vector<double> ns_per_flop_;
};

}  // namespace warpcall::inspect
