// Times kernels while copies run in other streams. An event's time is written to host memory,
// behind the copies that are on PCIe: with copies both ways, the events before and after a
// kernel of 4 us lay 15 us apart on an H200. These stamps stay on the GPU until the job is
// done.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/runtime/cuda/cuda_device.h"
#include "server/runtime/device.h"

namespace warpcall {

// Used by one thread.
class KernelClock final : public StepClock {
 public:
  // Times kernels on `stream`, which outlives it and is idle.
  static absl::StatusOr<std::unique_ptr<KernelClock>> Create(CudaDevice* device,
                                                             cudaStream_t stream);

  // Forgets the stamps. Allocates when `kernels` is more than ever before.
  absl::Status Begin(int kernels) override;
  // Enqueued before and after each kernel.
  absl::Status Stamp() override;
  // Fetches on the kernels' stream.
  absl::Status End() override { return Fetch(stream_); }
  // Enqueues the stamps' way to the host, on a stream that comes after them.
  absl::Status Fetch(cudaStream_t stream);
  // Times of the kernels, and of all together, once Fetch's stream has passed it.
  std::vector<int64_t> Times() const;
  int64_t KernelNs() const;

 private:
  KernelClock(CudaDevice* device, cudaStream_t stream) : device_(device), stream_(stream) {}
  absl::Status Calibrate();
  const int64_t* stamps() const { return static_cast<const int64_t*>(host_.data()); }

  CudaDevice* const device_;
  const cudaStream_t stream_;
  Buffer memory_;  // on the device
  Buffer host_;
  int used_ = 0;
  int64_t gap_ns_ = 0;  // between two stamps with nothing between them
};

}  // namespace warpcall
