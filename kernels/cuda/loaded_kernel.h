// Machine code that CUDA's runtime loads while the process runs.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace warpcall::cuda {

// One kernel of an image, on every device of the process. Move-only.
class LoadedKernel {
 public:
  // As ToStatus. The image, a cubin, is copied.
  static absl::StatusOr<LoadedKernel> Load(absl::string_view image, const std::string& entry);
  // Kernels that share the image's variables.
  static absl::StatusOr<std::vector<LoadedKernel>> LoadAll(absl::string_view image,
                                                           absl::Span<const std::string> entries);
  LoadedKernel(LoadedKernel&&) noexcept = default;
  LoadedKernel& operator=(LoadedKernel&&) noexcept = default;
  // REQUIRES: what was launched has run, and no graph that has it is launched any more.
  ~LoadedKernel() = default;

  cudaKernel_t get() const { return kernel_; }

  // Loads the kernel onto the current device, where it can then be launched even while a graph is
  // captured. Without this call the runtime loads it at the first launch.
  absl::StatusOr<cudaFuncAttributes> MakeReady() const;

 private:
  LoadedKernel() = default;

  struct Library {
    cudaLibrary_t handle = nullptr;
    ~Library();
  };

  std::shared_ptr<const Library> library_;
  cudaKernel_t kernel_ = nullptr;
  std::string entry_;
};

}  // namespace warpcall::cuda
