// Vectors of 16 bytes that begin anywhere in memory that is read by aligned ones.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/device_check.cuh"

namespace warpcall::cuda {

// The 16 bytes that begin `start` bytes into `low`, of it and the next 16 bytes. REQUIRES: `start`
// is even and at most 14.
__device__ inline uint4 Joined(const uint4& low, const uint4& high, uint32_t start) {
  WARPCALL_DEVICE_CHECK(start % 2 == 0 && start < 16, start);
  uint32_t words[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
  for (uint32_t step = 2; step > 0; step /= 2)
    if ((start / 4 & step) != 0) {
#pragma unroll
      for (uint32_t i = 0; i + step < 8; ++i) words[i] = words[i + step];
    }
  const uint32_t bits = start % 4 * 8;
  const auto word = [&](uint32_t i) {
    return static_cast<uint32_t>((uint64_t{words[i + 1]} << 32 | words[i]) >> bits);
  };
  return {word(0), word(1), word(2), word(3)};
}

}  // namespace warpcall::cuda
