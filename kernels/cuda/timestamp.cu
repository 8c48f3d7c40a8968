#include <cuda_runtime.h>

#include "kernels/cuda/cuda_status.h"
#include "kernels/cuda/timestamp.h"

namespace warpcall::cuda {
namespace {

__global__ void WriteTime(int64_t* slot) {
  int64_t now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  *slot = now;
}

}  // namespace

absl::Status EnqueueTimestamp(cudaStream_t stream, int64_t* slot) {
  WriteTime<<<1, 1, 0, stream>>>(slot);
  return ToStatus(cudaGetLastError(), "launching a timestamp");
}

}  // namespace warpcall::cuda
