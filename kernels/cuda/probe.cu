#include <cuda_runtime.h>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/cuda_status.h"
#include "kernels/cuda/probe.h"

namespace warpcall::cuda {
namespace {

__global__ void Nothing() {}

}  // namespace

absl::Status CheckDeviceCode(const DeviceProperties& device) {
  cudaFuncAttributes attributes;
  const cudaError_t error =
      cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(Nothing));
  if (error == cudaErrorNoKernelImageForDevice || error == cudaErrorInvalidDeviceFunction) {
    return absl::FailedPreconditionError(absl::StrCat(
        device.name, " (", device.description, ") has compute capability ",
        device.compute_capability, "; this build has code for ", WARPCALL_CUDA_ARCHITECTURES));
  }
  return ToStatus(error, "looking for the device's code");
}

}  // namespace warpcall::cuda
