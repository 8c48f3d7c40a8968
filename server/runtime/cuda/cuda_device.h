// An NVIDIA GPU through the CUDA runtime. Staging is pinned and mapped, so that small requests'
// kernels reach it themselves; device memory comes from a pool of this process that keeps what it
// once got.
#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <memory>
#include <string>

#include "kernels/cuda/libraries.h"
#include "server/runtime/device.h"

namespace warpcall {

class CudaDevice final : public Device {
 public:
  // Returns the number of devices that the driver shows; 0 without a driver or a device.
  static absl::StatusOr<int> Count();
  static std::string NameOf(int ordinal);
  // "NVIDIA H200, 9.0". Opens nothing. REQUIRES: as Open.
  static absl::StatusOr<std::string> ModelOf(int ordinal);
  // REQUIRES: 0 <= ordinal < Count(). FAILED_PRECONDITION when this build has no code for the
  // device. Keeps code compiled at run time in the folder `compile_cache`, unless it is empty.
  static absl::StatusOr<std::unique_ptr<CudaDevice>> Open(int ordinal,
                                                          const std::string& compile_cache = "");
  ~CudaDevice() override;

  const DeviceProperties& properties() const override { return properties_; }
  // False once any GPU of this process was lost: the others are lost with it.
  bool healthy() const override;
  absl::StatusOr<std::unique_ptr<Stream>> CreateStream() override;
  absl::StatusOr<Buffer> AllocateStaging(size_t bytes) override;
  int64_t resident_bytes_max() const override { return properties_.memory_bytes / 4; }
  absl::StatusOr<Buffer> AllocateResident(size_t bytes) override;
  absl::StatusOr<Buffer> AllocateGuarded(size_t bytes) override;
  bool KernelsUseStaging(size_t bytes, bool suits_host_memory) const override;
  size_t round_bytes() const override;
  bool pools_memory() const override { return true; }
  MemoryUsage memory_usage() const override;
  compiled::Counts compile_counts() const override;
  absl::StatusOr<std::unique_ptr<DeviceProfiler>> CreateProfiler() override;

  // Makes memory that another process shares fit for this device's copies and kernels.
  absl::Status PinStaging(void* data, size_t bytes);

  // The rest is for this device's streams.

  // As cuda::ToStatus; a sticky error makes the devices lost.
  absl::Status Check(cudaError_t error, absl::string_view what);
  // OK once the calling thread's CUDA calls go to this device.
  absl::Status MakeCurrent();
  // Allocates in the order of `stream`, which the buffer must not outlive.
  absl::StatusOr<Buffer> AllocateMemory(size_t bytes, cudaStream_t stream);
  cuda::Libraries* libraries() { return libraries_.get(); }

 private:
  explicit CudaDevice(int ordinal) : ordinal_(ordinal) {}
  absl::Status Describe();
  // The properties that no kernel can exceed.
  absl::Status DescribeLimits();
  absl::StatusOr<cudaMemPool_t> CreatePool(uint64_t kept_bytes);
  absl::StatusOr<Buffer> AllocateFrom(cudaMemPool_t pool, size_t bytes, cudaStream_t stream);

  const int ordinal_;
  DeviceProperties properties_;
  cudaMemPool_t pool_ = nullptr;
  cudaMemPool_t resident_pool_ = nullptr;
  cudaStream_t resident_stream_ = nullptr;  // orders what that pool hands out and gets back
  std::unique_ptr<cuda::Libraries> libraries_;
  std::atomic<int64_t> used_bytes_{0};
};

}  // namespace warpcall
