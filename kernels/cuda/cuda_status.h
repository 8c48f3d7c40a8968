// Converts CUDA's error codes to Status, in one place; knows which errors a device does not recover
// from, and counts each.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace warpcall::cuda {

// Returns true for errors after which the device works again only in a new process: those that CUDA
// documents so ("the process must be terminated and relaunched"), uncorrectable ECC and NVLink
// errors.
bool IsSticky(cudaError_t error);

// OK for cudaSuccess. UNAVAILABLE for sticky errors, RESOURCE_EXHAUSTED when memory ran out,
// INTERNAL otherwise; the message says what was attempted (`what`), CUDA's name of the error and
// its meaning. Counts the error.
absl::Status ToStatus(cudaError_t error, absl::string_view what);

struct ErrorCount {
  const char* code;  // "cudaErrorIllegalAddress"
  int64_t count;
};
// Every code that is known to matter, and "other", since the process began.
std::vector<ErrorCount> ErrorCounts();

// The version of the toolkit that this was built with: "13.0".
const char* ToolkitVersion();

}  // namespace warpcall::cuda
