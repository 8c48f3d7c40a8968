#include "kernels/triton/loader.h"

#include <cuda.h>

#include <cstddef>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/cuda/cuda_status.h"
#include "kernels/cuda/driver_function.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/loaded_kernel.h"
#include "proto/common/status_macros.h"

namespace warpcall::triton {
namespace {

using cuda::LoadedKernel;
using cuda::ToStatus;

// The first version of the driver's interface that reports a kernel's parameters.
constexpr unsigned kParameterInfoVersion = 12040;
using ParameterInfo = CUresult (*)(CUkernel, size_t index, size_t* offset, size_t* bytes);

// A kernel that gets fewer parameters than it has reads beyond them.
absl::Status CheckParameters(const Image& image, cudaKernel_t kernel) {
  ASSIGN_OR_RETURN(const auto info, cuda::FindDriverFunction<ParameterInfo>("cuKernelGetParamInfo",
                                                                            kParameterInfoVersion));
  std::vector<size_t> real;
  size_t offset = 0;
  size_t bytes = 0;
  // One parameter more than expected is enough to fail.
  while (real.size() <= image.parameter_bytes.size() &&
         info(kernel, real.size(), &offset, &bytes) == CUDA_SUCCESS)
    real.push_back(bytes);
  if (real == image.parameter_bytes) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("kernel ", image.entry, " has parameters of ", absl::StrJoin(real, ", "),
                   " bytes; its manifest says ", absl::StrJoin(image.parameter_bytes, ", ")));
}

// Puts it onto the current device.
absl::Status MakeReady(const Image& image, const LoadedKernel& kernel) {
  ASSIGN_OR_RETURN(const cudaFuncAttributes attributes, kernel.MakeReady());
  if (image.threads > attributes.maxThreadsPerBlock)
    return absl::FailedPreconditionError(
        absl::StrCat("kernel ", image.entry, " takes blocks of ", attributes.maxThreadsPerBlock,
                     " threads at most; its manifest says ", image.threads));
  return cuda::AllowSharedMemory(kernel.get(), image.shared_bytes);
}

}  // namespace

Loader& Loader::Get() {
  static auto& loader = *new Loader();
  return loader;
}

absl::StatusOr<cudaKernel_t> Loader::Load(const Image& image) {
  const LoadedKernel* kernel = nullptr;
  {
    absl::MutexLock lock(&mutex_);
    auto at = loaded_.find(&image);
    if (at == loaded_.end()) {
      ASSIGN_OR_RETURN(LoadedKernel loaded, LoadedKernel::Load(image.cubin, image.entry));
      RETURN_IF_ERROR(CheckParameters(image, loaded.get()));
      at = loaded_.emplace(&image, std::move(loaded)).first;
    }
    kernel = &at->second;
  }
  RETURN_IF_ERROR(MakeReady(image, *kernel));
  return kernel->get();
}

}  // namespace warpcall::triton
