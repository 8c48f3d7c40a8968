// Sums that blocks leave to the block that writes their tile, in global memory. See Runs.
#pragma once

#include <cstdint>

#include "kernels/cuda/device_check.cuh"
#include "kernels/matmul/matmul_cuda_ptx.cuh"
#include "kernels/matmul/matmul_cuda_runs.h"

namespace warpcall::matmul {

// Of `places` blocks, each of kThreads with kSums sums a thread: first the number of runs drawn,
// then a flag for each warp, then the sums as threads have them in registers, four at a time, with
// those of the block's other threads beside them. The number and the flags are 0 when the kernel
// begins. Leave and Add are called by whole warps.
template <uint32_t kThreads, uint32_t kSums>
class LeftSums {
 public:
  static constexpr uint32_t kWarps = kThreads / 32;
  static constexpr uint32_t kQuads = kSums / 4;
  static_assert(kSums % 4 == 0);

  // `thread` counts those that have sums.
  __device__ LeftSums(void* memory, uint32_t places, uint32_t thread)
      : flags_(FlagsIn(memory) + thread / 32),
        quads_(reinterpret_cast<float4*>(FlagsIn(memory) + places * kWarps) + thread) {}

  // Draws a run, the last one first, for a block that begins: it waits for sums of later runs
  // alone, whose blocks have begun, and will end whatever else the GPU runs. From Runs::count on
  // there is no run for the block.
  __device__ static uint32_t DrawRun(void* memory, const Runs& runs) {
    return runs.count - 1 - DrawNumber(static_cast<uint32_t*>(memory));
  }

  __device__ void Leave(uint32_t place, const float* sums) const {
    float4* const to = quads_ + place * kQuads * kThreads;
#pragma unroll
    for (uint32_t i = 0; i < kQuads; ++i)
      to[i * kThreads] =
          make_float4(sums[4 * i], sums[4 * i + 1], sums[4 * i + 2], sums[4 * i + 3]);
    __syncwarp();
    if (threadIdx.x % 32 == 0) RaiseFlag(flags_ + place * kWarps);
  }

  // Waits for the sums left at `place`, and adds them.
  __device__ void Add(uint32_t place, float* sums) const {
    if (threadIdx.x % 32 == 0) AwaitFlag(flags_ + place * kWarps);
    __syncwarp();
    const float4* const from = quads_ + place * kQuads * kThreads;
#pragma unroll
    for (uint32_t i = 0; i < kQuads; ++i) {
      const float4 four = LoadFromL2(from + i * kThreads);
      sums[4 * i] += four.x;
      sums[4 * i + 1] += four.y;
      sums[4 * i + 2] += four.z;
      sums[4 * i + 3] += four.w;
    }
  }

 private:
  __device__ static uint32_t* FlagsIn(void* memory) {
    return static_cast<uint32_t*>(memory) + kLeftNumberBytes / sizeof(uint32_t);
  }

  uint32_t* const flags_;
  float4* const quads_;
};

}  // namespace warpcall::matmul
