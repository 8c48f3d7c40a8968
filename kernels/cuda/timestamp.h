// The GPU's own clock, read in a stream's order.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "absl/status/status.h"

namespace warpcall::cuda {

// Enqueues the writing of the GPU's nanosecond timer to *slot, in device memory.
absl::Status EnqueueTimestamp(cudaStream_t stream, int64_t* slot);

// Enqueues the writing of *begin, in device memory, and of the GPU's nanosecond timer to report[0]
// and report[1], in host memory that is mapped for the device. A host that reads report[1] with
// acquire order and sees it changed sees everything that ran on the stream before, too.
absl::Status EnqueueReport(cudaStream_t stream, const int64_t* begin, int64_t* report);

}  // namespace warpcall::cuda
