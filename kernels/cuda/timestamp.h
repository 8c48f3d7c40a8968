// The GPU's own clock, read in a stream's order.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "absl/status/status.h"

namespace warpcall::cuda {

// Enqueues the writing of the GPU's nanosecond timer to *slot, in device memory.
absl::Status EnqueueTimestamp(cudaStream_t stream, int64_t* slot);

}  // namespace warpcall::cuda
