#include "kernels/cuda/timestamp.h"

#include <cuda_runtime.h>

#include "kernels/cuda/launch.h"

namespace warpcall::cuda {
namespace {

__device__ int64_t GlobalTimer() {
  int64_t now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

__global__ void WriteTime(int64_t* slot) { *slot = GlobalTimer(); }

__global__ void WriteReport(const int64_t* begin, int64_t* report) {
  const int64_t now = GlobalTimer();
  report[0] = *begin;
  // The release covers what kernels before this one wrote: it saw their writes.
  asm volatile("st.release.sys.global.s64 [%0], %1;" ::"l"(report + 1), "l"(now) : "memory");
}

}  // namespace

absl::Status EnqueueTimestamp(cudaStream_t stream, int64_t* slot) {
  return Launch(WriteTime, GridOf(1, 1), {.stream = stream}, slot);
}

absl::Status EnqueueReport(cudaStream_t stream, const int64_t* begin, int64_t* report) {
  return Launch(WriteReport, GridOf(1, 1), {.stream = stream}, begin, report);
}

}  // namespace warpcall::cuda
