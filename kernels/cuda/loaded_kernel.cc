#include "kernels/cuda/loaded_kernel.h"

#include "absl/strings/str_cat.h"
#include "kernels/cuda/cuda_status.h"
#include "proto/common/status_macros.h"

namespace warpcall::cuda {

absl::StatusOr<LoadedKernel> LoadedKernel::Load(absl::string_view image, const std::string& entry) {
  LoadedKernel loaded;
  loaded.entry_ = entry;
  RETURN_IF_ERROR(ToStatus(
      cudaLibraryLoadData(&loaded.library_, image.data(), nullptr, nullptr, 0, nullptr, nullptr, 0),
      absl::StrCat("loading the code of kernel ", entry)));
  RETURN_IF_ERROR(ToStatus(cudaLibraryGetKernel(&loaded.kernel_, loaded.library_, entry.c_str()),
                           absl::StrCat("looking for kernel ", entry)));
  return loaded;
}

LoadedKernel::~LoadedKernel() {
  if (library_ != nullptr) cudaLibraryUnload(library_);
}

absl::StatusOr<cudaFuncAttributes> LoadedKernel::MakeReady() const {
  cudaFuncAttributes attributes;
  RETURN_IF_ERROR(ToStatus(cudaFuncGetAttributes(&attributes, static_cast<const void*>(kernel_)),
                           absl::StrCat("putting kernel ", entry_, " onto the device")));
  return attributes;
}

}  // namespace warpcall::cuda
