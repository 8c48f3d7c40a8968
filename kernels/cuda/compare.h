// Comparison of memory on a GPU.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"

namespace warpcall::cuda {

struct Memories {
  const void* a;  // aligned to 16 bytes, as b is
  const void* b;
  size_t bytes;
};

// Enqueues a comparison. Writes 1 to *differs, in host memory that is mapped for the device, if a
// byte differs; otherwise leaves it.
absl::Status EnqueueCompare(cudaStream_t stream, const Memories& memories, uint32_t* differs);

}  // namespace warpcall::cuda
