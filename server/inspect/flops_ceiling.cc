#include "server/inspect/flops_ceiling.h"

#include "kernels/cpu/multiply_adds.h"
#include "server/engine/clock.h"
#include "server/inspect/summary.h"

namespace warpcall::inspect {
namespace {

// Waking the threads costs some percent of it.
constexpr int64_t kRounds = 500;

}  // namespace

void FlopsCeiling::Sample() {
  const int64_t start_ns = MonotonicNs();
  const int64_t flops = cpu::MultiplyAdds(pool_, kRounds);
  ns_per_flop_.push_back(static_cast<double>(MonotonicNs() - start_ns) /
                         static_cast<double>(flops));
}

double FlopsCeiling::flops_per_second() const {
  const double fast = Summarize(ns_per_flop_).p10;
  return fast > 0 ? 1e9 / fast : 0;
}

}  // namespace warpcall::inspect
