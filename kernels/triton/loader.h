// Machine code that came as a manifest describes it, made ready to launch by CUDA's runtime.
#pragma once

#include <cuda_runtime_api.h>

#include "absl/base/thread_annotations.h"
#include "absl/container/node_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "kernels/cuda/loaded_kernel.h"
#include "kernels/triton/manifest.h"

namespace warpcall::triton {

// Loads each image once, for all devices, and keeps it for the life of the process, as the runtime
// keeps the kernels that are linked into it. Thread-safe.
class Loader {
 public:
  static Loader& Get();

  // FAILED_PRECONDITION when its parameters or threads are others than the manifest says; as
  // ToStatus otherwise. On the current device it is then ready to launch, even while a graph is
  // captured. REQUIRES: the image outlives the process's last launch of it.
  absl::StatusOr<cudaKernel_t> Load(const Image& image) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  absl::Mutex mutex_;
  // Never taken out, so that they stay where they are.
  absl::node_hash_map<const Image*, cuda::LoadedKernel> loaded_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace warpcall::triton
