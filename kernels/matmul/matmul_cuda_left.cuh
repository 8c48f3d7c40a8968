// Sums that blocks leave to the block that writes their tile, in global memory. See Runs.
#pragma once

#include <cstdint>

#include "kernels/cuda/device_check.cuh"
#include "kernels/matmul/matmul_cuda_ptx.cuh"
#include "kernels/matmul/matmul_cuda_runs.h"

namespace warpcall::matmul {

// Memory for the sums of `blocks` blocks for each run, of kThreads with kSums sums a thread. It has
// the number of runs drawn, then a flag for each warp, then the sums as threads have them in
// registers, four at a time, with those of the block's other threads beside them. The number and
// the flags are 0 when the kernel begins.
template <uint32_t kThreads, uint32_t kSums>
class LeftSums {
 public:
  // `rank` is the block's among those that have its run; `thread` counts those that have sums.
  struct Place {
    uint32_t blocks;
    uint32_t rank;
    uint32_t thread;
  };

  __device__ LeftSums(void* memory, const Runs& runs, const Place& place)
      : runs_(runs),
        place_(place),
        flags_(FlagsIn(memory) + place.thread / 32),
        quads_(reinterpret_cast<float4*>(FlagsIn(memory) + runs.count * place.blocks * kWarps) +
               place.thread) {}

  // Draws a run, the last one first, for a block that begins: it waits for sums of later runs
  // alone, whose blocks have begun, and will end whatever else the GPU runs. From Runs::count on
  // there is no run for the block.
  __device__ static uint32_t DrawRun(void* memory, const Runs& runs) {
    return runs.count - 1 - DrawNumber(static_cast<uint32_t*>(memory));
  }

  // Takes the sums that run `own` has of the tile that begins at `tile` in the row, from step
  // `begin` on. If these are the tile's first steps, adds the sums of the runs that have its others
  // and returns true. Otherwise leaves them to the run with the first steps. Called by whole warps.
  __device__ bool LeaveOrAdd(uint32_t own, uint32_t tile, uint32_t begin, float* sums) const {
    if (begin > tile) {
      Leave(own * place_.blocks + place_.rank, sums);
      return false;
    }
    for (uint32_t run = own + 1; run < runs_.count && runs_.Begin(run) < tile + runs_.tile_steps;
         ++run)
      Add(run * place_.blocks + place_.rank, sums);
    return true;
  }

 private:
  static constexpr uint32_t kWarps = kThreads / 32;
  static constexpr uint32_t kQuads = kSums / 4;
  static_assert(kSums % 4 == 0);

  __device__ void Leave(uint32_t place, const float* sums) const {
    float4* const to = quads_ + place * kQuads * kThreads;
#pragma unroll
    for (uint32_t i = 0; i < kQuads; ++i)
      to[i * kThreads] =
          make_float4(sums[4 * i], sums[4 * i + 1], sums[4 * i + 2], sums[4 * i + 3]);
    __syncwarp();
    if (threadIdx.x % 32 == 0) RaiseFlag(flags_ + place * kWarps);
  }

  // Waits for the sums that are left at `place`, and adds them.
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

  __device__ static uint32_t* FlagsIn(void* memory) {
    return static_cast<uint32_t*>(memory) + kLeftNumberBytes / sizeof(uint32_t);
  }

  const Runs& runs_;
  const Place place_;
  uint32_t* const flags_;
  float4* const quads_;
};

}  // namespace warpcall::matmul
