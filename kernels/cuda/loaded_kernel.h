// Machine code that CUDA's runtime loads while the process runs.
#pragma once

#include <cuda_runtime_api.h>

#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace warpcall::cuda {

// One kernel of an image, on every device of the process. Move-only.
class LoadedKernel {
 public:
  // As ToStatus. The image, a cubin, is copied.
  static absl::StatusOr<LoadedKernel> Load(absl::string_view image, const std::string& entry);
  LoadedKernel(LoadedKernel&& other) noexcept { *this = std::move(other); }
  LoadedKernel& operator=(LoadedKernel&& other) noexcept {
    std::swap(library_, other.library_);
    std::swap(kernel_, other.kernel_);
    std::swap(entry_, other.entry_);
    return *this;
  }
  // REQUIRES: what was launched has run, and no graph that has it is launched any more.
  ~LoadedKernel();

  cudaKernel_t get() const { return kernel_; }

  // Loads the kernel onto the current device, where it can then be launched even while a graph is
  // captured. Without this call the runtime loads it at the first launch.
  absl::StatusOr<cudaFuncAttributes> MakeReady() const;

 private:
  LoadedKernel() = default;

  cudaLibrary_t library_ = nullptr;
  cudaKernel_t kernel_ = nullptr;
  std::string entry_;
};

}  // namespace warpcall::cuda
