// The vendor's libraries on one device, with what they remember from launch to launch.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "kernels/cuda/cublaslt_api.h"
#include "kernels/cuda/cudnn_handles.h"

namespace warpcall::compiled {
class Compiler;  // kernels/compiled/compiler.h
}

namespace warpcall::cuda {

// Libraries of one device, which is current in every thread that constructs, uses or destroys it.
// Thread-safe. Handles are created when a row first asks, for a plan; without the libraries nothing
// fails but those rows.
class Libraries {
 public:
  // Opens the libraries that are there, so that no request waits for that: cuBLASLt's half a
  // gigabyte takes up to a second the first time. `compile_cache` is the compiler's folder.
  explicit Libraries(const std::string& compile_cache = "");
  ~Libraries();
  Libraries(const Libraries&) = delete;
  Libraries& operator=(const Libraries&) = delete;

  // Any number of threads may use one handle at once. UNIMPLEMENTED when cuBLASLt is not there.
  absl::StatusOr<cublasLtHandle_t> CublasLt() ABSL_LOCKS_EXCLUDED(mutex_);

  CudnnHandles& cudnn() { return cudnn_; }

  // Returns the compiler of CUDA C++ that is generated while the process runs.
  compiled::Compiler& compiler() const { return *compiler_; }

 private:
  absl::Mutex mutex_;
  cublasLtHandle_t cublas_lt_ ABSL_GUARDED_BY(mutex_) = nullptr;
  CudnnHandles cudnn_;
  const std::unique_ptr<compiled::Compiler> compiler_;
};

}  // namespace warpcall::cuda
