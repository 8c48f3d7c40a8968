// Long sums in float32.
#pragma once

#include <cstdint>

namespace warpcall::cuda {

// The sum of terms 0 to count - 1, each kTermsPerChunk in a chain of additions of their own: the
// errors of one chain of n terms that are alike all have one sign and add up to n / 2 units in the
// last place. add(i, sum) returns sum and term i.
template <typename Add>
__device__ float ChunkedSum(int64_t count, const Add& add) {
  constexpr int64_t kTermsPerChunk = 512;
  float total = 0;
  for (int64_t begin = 0; begin < count; begin += kTermsPerChunk) {
    const int64_t end = count - begin < kTermsPerChunk ? count : begin + kTermsPerChunk;
    float chunk = 0;
    for (int64_t i = begin; i < end; ++i) chunk = add(i, chunk);
    total += chunk;
  }
  return total;
}

}  // namespace warpcall::cuda
