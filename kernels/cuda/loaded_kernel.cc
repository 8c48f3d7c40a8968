#include "kernels/cuda/loaded_kernel.h"

#include "absl/strings/str_cat.h"
#include "kernels/cuda/cuda_status.h"
#include "proto/common/status_macros.h"

namespace warpcall::cuda {

absl::StatusOr<std::vector<LoadedKernel>> LoadedKernel::LoadAll(
    absl::string_view image, absl::Span<const std::string> entries) {
  auto library = std::make_shared<Library>();
  RETURN_IF_ERROR(ToStatus(
      cudaLibraryLoadData(&library->handle, image.data(), nullptr, nullptr, 0, nullptr, nullptr, 0),
      absl::StrCat("loading the code of kernel ", entries[0])));
  std::vector<LoadedKernel> kernels;
  for (const std::string& entry : entries) {
    LoadedKernel loaded;
    loaded.library_ = library;
    loaded.entry_ = entry;
    RETURN_IF_ERROR(ToStatus(cudaLibraryGetKernel(&loaded.kernel_, library->handle, entry.c_str()),
                             absl::StrCat("looking for kernel ", entry)));
    kernels.push_back(std::move(loaded));
  }
  return kernels;
}

absl::StatusOr<LoadedKernel> LoadedKernel::Load(absl::string_view image, const std::string& entry) {
  ASSIGN_OR_RETURN(std::vector<LoadedKernel> kernels, LoadAll(image, {&entry, 1}));
  return std::move(kernels[0]);
}

LoadedKernel::Library::~Library() {
  if (handle != nullptr) cudaLibraryUnload(handle);
}

absl::StatusOr<cudaFuncAttributes> LoadedKernel::MakeReady() const {
  cudaFuncAttributes attributes;
  RETURN_IF_ERROR(ToStatus(cudaFuncGetAttributes(&attributes, static_cast<const void*>(kernel_)),
                           absl::StrCat("putting kernel ", entry_, " onto the device")));
  return attributes;
}

}  // namespace warpcall::cuda
