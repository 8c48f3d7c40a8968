// Finds the fastest of several ways to do the same work, by trying them.
#pragma once

#include <cuda_runtime_api.h>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace warpcall::cuda {

// Times `enqueue(i)`, which enqueues way i on `stream`, for the ways 0 <= i < count, and returns
// the fastest. The earlier of two equals wins, so callers put the expected best first. A way whose
// `enqueue` fails is left out. Returns the first error if all fail, and UNAVAILABLE at once, since
// the device is then lost. REQUIRES: count > 0, nothing captures `stream`.
//
// Waits for the stream, many times. Takes about 100 ms at most, but always times three ways unless
// that takes 400 ms. If one way runs longer than this, the rest are not tried.
absl::StatusOr<int> FindFastest(int count, cudaStream_t stream,
                                absl::FunctionRef<absl::Status(int)> enqueue);

}  // namespace warpcall::cuda
