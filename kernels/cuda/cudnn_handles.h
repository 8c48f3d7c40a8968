// cuDNN's handles on one device. A handle has a stream and serves one thread at a time.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "kernels/cuda/cudnn_api.h"

namespace warpcall::cuda {

class CudnnHandles;

// A handle that is ours until this is destroyed.
class CudnnLease {
 public:
  CudnnLease(CudnnLease&& other) noexcept
      : owner_(std::exchange(other.owner_, nullptr)),
        index_(other.index_),
        handle_(other.handle_) {}
  CudnnLease& operator=(CudnnLease&&) = delete;
  ~CudnnLease();

  cudnnHandle_t get() const { return handle_; }

 private:
  friend class CudnnHandles;
  CudnnLease(CudnnHandles* owner, size_t index, cudnnHandle_t handle)
      : owner_(owner), index_(index), handle_(handle) {}

  CudnnHandles* owner_;
  size_t index_;
  cudnnHandle_t handle_;
};

// Thread-safe. The device must be current in every caller and at destruction.
class CudnnHandles {
 public:
  // More than the lanes of a device; beyond it streams share.
  static constexpr size_t kHandlesMax = 16;

  CudnnHandles() = default;
  ~CudnnHandles();
  CudnnHandles(const CudnnHandles&) = delete;
  CudnnHandles& operator=(const CudnnHandles&) = delete;

  // Returns a handle that enqueues on `stream`. Prefers the stream's last handle if that is free,
  // which costs neither a new handle nor a change of streams. Waits while all are in use.
  // UNIMPLEMENTED if cuDNN is missing.
  absl::StatusOr<CudnnLease> Acquire(cudaStream_t stream) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  friend class CudnnLease;

  struct Entry {
    cudnnHandle_t handle = nullptr;  // null: not created yet
    cudaStream_t stream = nullptr;   // the handle's stream
    bool in_use = false;
  };

  // The best free entry for `stream`, now in use, copied into `entry`; its index.
  size_t Take(cudaStream_t stream, Entry* entry) ABSL_LOCKS_EXCLUDED(mutex_);
  void Store(size_t index, const Entry& entry) ABSL_LOCKS_EXCLUDED(mutex_);
  void Release(size_t index) ABSL_LOCKS_EXCLUDED(mutex_);
  bool AnyFree() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  absl::Mutex mutex_;
  std::array<Entry, kHandlesMax> entries_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace warpcall::cuda
