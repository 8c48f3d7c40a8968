#include "kernels/cuda/stream_kernels.h"

#include <cuda_runtime.h>

#include <algorithm>

#include "kernels/cuda/launch.h"

namespace warpcall::cuda {
namespace {

__device__ int64_t GlobalTimer() {
  int64_t now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

__global__ void WriteTime(int64_t* slot) { *slot = GlobalTimer(); }

// By one block.
__device__ void Run(const SmallCopies& copies) {
  for (int i = 0; i < copies.count; ++i) {
    const SmallCopies::Copy& copy = copies.copies[i];
    const size_t vectors = copy.bytes / sizeof(uint4);
    for (size_t at = threadIdx.x; at < vectors; at += blockDim.x)
      static_cast<uint4*>(copy.to)[at] = static_cast<const uint4*>(copy.from)[at];
    const size_t rest = vectors * sizeof(uint4) + threadIdx.x;
    if (rest < copy.bytes)
      static_cast<char*>(copy.to)[rest] = static_cast<const char*>(copy.from)[rest];
  }
}

__global__ void Begin(const __grid_constant__ SmallCopies inputs, WorkTimes* times) {
  if (threadIdx.x == 0) times->start_ns = GlobalTimer();
  Run(inputs);
  __syncthreads();
  if (threadIdx.x == 0) times->begin_ns = GlobalTimer();
}

__global__ void Report(const __grid_constant__ SmallCopies outputs, const WorkTimes* times,
                       WorkTimes* report) {
  const int64_t done = GlobalTimer();
  // The release below makes visible to the host what this thread has seen: what kernels before this
  // one wrote, and what the block's other threads copied before the barrier.
  if (outputs.count > 0) {
    Run(outputs);
    __threadfence_system();
    __syncthreads();
  }
  if (threadIdx.x != 0) return;
  report->start_ns = times->start_ns;
  report->begin_ns = times->begin_ns;
  report->done_ns = done;
  const int64_t end = GlobalTimer();
  asm volatile("st.release.sys.global.s64 [%0], %1;" ::"l"(&report->end_ns), "l"(end) : "memory");
}

constexpr int kCopyThreads = 512;
int ThreadsFor(const SmallCopies& copies) { return copies.count == 0 ? 1 : kCopyThreads; }

constexpr int kCompareThreads = 256;
// More would not be faster: each block has several loads under way.
constexpr int64_t kCompareBlocksMax = 1024;

__global__ void Compare(Memories memories, uint32_t* differs) {
  const size_t first = blockIdx.x * size_t{kCompareThreads} + threadIdx.x;
  const size_t vectors = memories.bytes / sizeof(uint4);
  const auto* const a = static_cast<const uint4*>(memories.a);
  const auto* const b = static_cast<const uint4*>(memories.b);
  uint32_t difference = 0;
  for (size_t i = first; i < vectors; i += gridDim.x * size_t{kCompareThreads})
    difference |= (a[i].x ^ b[i].x) | (a[i].y ^ b[i].y) | (a[i].z ^ b[i].z) | (a[i].w ^ b[i].w);
  const size_t rest = vectors * sizeof(uint4) + first;
  if (rest < memories.bytes)
    difference |=
        static_cast<const char*>(memories.a)[rest] != static_cast<const char*>(memories.b)[rest];
  if (__syncthreads_or(difference != 0) && threadIdx.x == 0) *differs = 1;
}

}  // namespace

absl::Status EnqueueTimestamp(cudaStream_t stream, int64_t* slot) {
  return Launch(WriteTime, GridOf(1, 1), {.stream = stream}, slot);
}

absl::Status EnqueueBegin(cudaStream_t stream, const SmallCopies& inputs, WorkTimes* times) {
  return Launch(Begin, GridOf(1, ThreadsFor(inputs)), {.stream = stream}, inputs, times);
}

absl::Status EnqueueReport(cudaStream_t stream, const SmallCopies& outputs, const WorkTimes* times,
                           WorkTimes* report) {
  return Launch(Report, GridOf(1, ThreadsFor(outputs)), {.stream = stream}, outputs, times, report);
}

absl::Status EnqueueCompare(cudaStream_t stream, const Memories& memories, uint32_t* differs) {
  WARPCALL_DCHECK(reinterpret_cast<uintptr_t>(memories.a) % sizeof(uint4) == 0 &&
                  reinterpret_cast<uintptr_t>(memories.b) % sizeof(uint4) == 0);
  if (memories.bytes == 0) return absl::OkStatus();
  const int64_t blocks =
      CeilDivide(static_cast<int64_t>(memories.bytes), int64_t{sizeof(uint4)} * kCompareThreads);
  return Launch(Compare, GridOf(std::min(blocks, kCompareBlocksMax), kCompareThreads),
                {.stream = stream}, memories, differs);
}

}  // namespace warpcall::cuda
