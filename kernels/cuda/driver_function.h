// The driver's functions, reached through the runtime alone: nothing is linked with the driver, so
// that the server starts where there is none.
#pragma once

#include <cuda_runtime_api.h>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "kernels/cuda/cuda_status.h"
#include "proto/common/status_macros.h"

namespace warpcall::cuda {

// `version` is the driver interface's that the function's type belongs to. FAILED_PRECONDITION
// where the driver is older.
template <typename Function>
absl::StatusOr<Function> FindDriverFunction(const char* name, unsigned version) {
  void* address = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  RETURN_IF_ERROR(
      ToStatus(cudaGetDriverEntryPointByVersion(name, &address, version, cudaEnableDefault, &found),
               absl::StrCat("looking for the driver's ", name)));
  if (found != cudaDriverEntryPointSuccess || address == nullptr)
    return absl::FailedPreconditionError(
        absl::StrCat("the driver has no ", name, " of version ", version));
  return reinterpret_cast<Function>(address);
}

}  // namespace warpcall::cuda
