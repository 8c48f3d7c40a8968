// The vendor's libraries on one device, with what they remember from launch to launch.
#pragma once

#include <cstddef>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "kernels/cuda/cublaslt_api.h"
#include "kernels/cuda/cudnn_handles.h"
#include "kernels/cuda/plan_cache.h"

namespace warpcall::cuda {

// Libraries of one device, which is current in every thread that constructs, uses or destroys it.
// Thread-safe. Handles are created when a row first asks, in its `prepare`; without the libraries
// nothing fails but those rows.
class Libraries {
 public:
  static constexpr size_t kPlansMax = 1024;

  // Opens the libraries that are there, so that no request waits for that: cuBLASLt's half a
  // gigabyte takes up to a second the first time.
  // Each holds a compiled kernel, about 1 MB of host memory and some of the device's.
  static constexpr size_t kCompiledPlansMax = 16;

  explicit Libraries(size_t plans_max = kPlansMax, size_t compiled_plans_max = kCompiledPlansMax);
  ~Libraries();
  Libraries(const Libraries&) = delete;
  Libraries& operator=(const Libraries&) = delete;

  // Any number of threads may use one handle at once. UNIMPLEMENTED when cuBLASLt is not there.
  absl::StatusOr<cublasLtHandle_t> CublasLt() ABSL_LOCKS_EXCLUDED(mutex_);

  CudnnHandles& cudnn() { return cudnn_; }
  PlanCache& plans() { return plans_; }
  // Plans that were compiled for their problem.
  PlanCache& compiled_plans() { return compiled_plans_; }

 private:
  absl::Mutex mutex_;
  cublasLtHandle_t cublas_lt_ ABSL_GUARDED_BY(mutex_) = nullptr;
  CudnnHandles cudnn_;
  // After cudnn_, so that its handles outlive the plans made with them.
  PlanCache plans_;
  PlanCache compiled_plans_;
};

}  // namespace warpcall::cuda
