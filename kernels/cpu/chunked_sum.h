// Long sums in float32.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cpu/thread_pool.h"

namespace warpcall::cpu {

// Returns the sum of term(0) to term(count - 1), which are floats, in one chain of additions for
// each kTermsPerChunk. In a single chain of n similar terms all errors have one sign and add up to
// n / 2 units in the last place. Once `stop` is set, the remaining terms are left out.
template <typename Term>
float ChunkedSum(int64_t count, const StopFlag* stop, const Term& term) {
  constexpr int64_t kTermsPerChunk = 512;
  double total = 0;
  ForRanges(count, stop, [&](int64_t first, int64_t last) {
    for (int64_t begin = first; begin < last; begin += kTermsPerChunk) {
      float chunk = 0;
      for (int64_t i = begin; i < std::min(begin + kTermsPerChunk, last); ++i) chunk += term(i);
      total += chunk;
    }
  });
  return static_cast<float>(total);
}

}  // namespace warpcall::cpu
