// Reads memory once and keeps nothing of it. A block reads a tile of 16 KiB with four loads of 16
// bytes a thread, none of which waits for another, and ends: the blocks that follow keep every
// multiprocessor full, 8 x 16 KiB under way, until the last wave. On an H200, in GB/s for 64 MiB
// and for 2 GiB: 4201 and 4620; with one load 4090 and 4499, with eight 4138 and 4623, in loops of
// 4 to 32 blocks a multiprocessor at most 4192 and 4561; a copy moves 4159 and 4142.
#include <cuda_runtime.h>

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/early_launch.cuh"
#include "kernels/cuda/early_launch.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/reads.h"
#include "kernels/cuda/threads.cuh"
#include "kernels/cuda/vector.cuh"
#include "proto/common/check.h"

namespace warpcall::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kLoads = 4;
constexpr int kBlocksPerMultiprocessor = 8;

// An instruction that depends on the bits, which keeps ptxas from removing the loads; one thread in
// 2^32 runs it.
__device__ void Use(uint32_t bits) {
  if (bits == 0x9E3779B9u) __nanosleep(1);
}

// Loads past L1, since no byte is read twice and more than 64 KiB are under way. They enter L2 in
// the ordinary way: memory that fits there is read from there, as by the kernels that are compared.
template <int kLoadsEach>
__global__ void __launch_bounds__(kThreads, kBlocksPerMultiprocessor)
    Read(const uint4* data, int64_t vectors) {
  AwaitKernelAhead();
  LetNextKernelBegin();
  const int64_t first = BlockIndex() * (kThreads * kLoadsEach) + threadIdx.x;
  uint4 loaded[kLoadsEach];
  // Loads beyond the end read the last vector again: a load under a condition would wait for it.
#pragma unroll
  for (int i = 0; i < kLoadsEach; ++i)
    loaded[i] = Access<16>::LoadStreaming(data + min(first + i * kThreads, vectors - 1));
  uint32_t bits = 0;
#pragma unroll
  for (int i = 0; i < kLoadsEach; ++i)
    bits ^= loaded[i].x ^ loaded[i].y ^ loaded[i].z ^ loaded[i].w;
  Use(bits);
}

template <int kLoadsEach>
PlanPtr PlanOf(int64_t vectors, const DeviceProperties& device) {
  const Grid grid =
      EarlyGridOf(reinterpret_cast<const void*>(&Read<kLoadsEach>),
                  GridOf(CeilDivide(vectors, int64_t{kThreads} * kLoadsEach), kThreads), device);
  return NewPlan({.may_be_replayed = true},
                 [grid, vectors](const Operands& operands, const LaunchContext& context) {
                   return Launch(Read<kLoadsEach>, grid, context,
                                 static_cast<const uint4*>(operands.inputs[0]), vectors);
                 });
}

}  // namespace

absl::StatusOr<PlanPtr> ReadsOn(int64_t bytes, const DeviceProperties& device) {
  WARPCALL_DCHECK(bytes > 0 && bytes % sizeof(uint4) == 0, bytes);
  if (device.kind != DeviceKind::kCuda)
    return absl::UnimplementedError(absl::StrCat("a GPU cannot read for ", device.name));
  const auto vectors = bytes / static_cast<int64_t>(sizeof(uint4));
  // One load a thread spreads what is small over all multiprocessors.
  const bool is_small =
      vectors <= int64_t{kThreads} * kBlocksPerMultiprocessor * device.multiprocessors;
  return is_small ? PlanOf<1>(vectors, device) : PlanOf<kLoads>(vectors, device);
}

}  // namespace warpcall::cuda
