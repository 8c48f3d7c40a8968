#include <cuda_runtime.h>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/timestamp.h"

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
  Run(outputs);
  // The release covers what kernels before this one wrote, which it saw, and what its other threads
  // copied before the barrier.
  __threadfence_system();
  __syncthreads();
  if (threadIdx.x != 0) return;
  report->start_ns = times->start_ns;
  report->begin_ns = times->begin_ns;
  report->done_ns = done;
  const int64_t end = GlobalTimer();
  asm volatile("st.release.sys.global.s64 [%0], %1;" ::"l"(&report->end_ns), "l"(end) : "memory");
}

constexpr int kCopyThreads = 512;
int ThreadsFor(const SmallCopies& copies) { return copies.count == 0 ? 1 : kCopyThreads; }

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

}  // namespace warpcall::cuda
