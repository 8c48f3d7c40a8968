// Launches of one stream, recorded as graphs that tell the host themselves when they are done and
// how long they took. Events in a graph do the same for 4 us more on an H200 (12.4 against 8.1 us
// from the launch of an empty graph's kernel to its end seen), and asking the driver for a stream's
// state takes its lock, which lanes share.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cuda/stream_kernels.h"
#include "proto/common/check.h"
#include "server/runtime/cuda/cuda_device.h"
#include "server/runtime/cuda/cuda_handles.h"
#include "server/runtime/device.h"

namespace warpcall {

// Used by one thread.
class Recordings {
 public:
  // Records launches on `stream`, which is idle and outlives the object.
  static absl::StatusOr<std::unique_ptr<Recordings>> Create(CudaDevice* device,
                                                            cudaStream_t stream);

  // Records the work that `enqueue` puts on the stream, which does not run yet, between copies.
  // RESOURCE_EXHAUSTED when there are kSlots recordings; INVALID_ARGUMENT for copies that are too
  // many, too large or not aligned.
  absl::StatusOr<int> Record(absl::FunctionRef<absl::Status()> enqueue,
                             const RecordedCopies& copies = {});
  // REQUIRES: the previous replay is done, or the stream is idle.
  absl::Status Replay(int recording);
  // Returns true if the last replay has run and its outputs can be read. A replay that failed is
  // never done.
  bool IsDone(int recording) const;
  // Durations of the last replay, once it is done, less the cost of the stamps around its kernels.
  StreamTimes Times(int recording) const;
  void Forget(int recording);

 private:
  static constexpr int kSlots = 64;
  Recordings(CudaDevice* device, cudaStream_t stream) : device_(device), stream_(stream) {}
  absl::Status Allocate();
  absl::Status Calibrate();
  absl::Status Capture(int slot, absl::FunctionRef<absl::Status()> enqueue,
                       const RecordedCopies& copies);
  // In host memory. end_ns is 0 until the replay is done, and written last.
  cuda::WorkTimes* report(int slot) const {
    WARPCALL_CHECK(slot >= 0 && slot < kSlots, slot);
    return static_cast<cuda::WorkTimes*>(reports_.data()) + slot;
  }

  CudaDevice* const device_;
  const cudaStream_t stream_;
  Buffer times_;                           // on the device, for each slot
  Buffer reports_;                         // on the host
  std::vector<cuda::GraphHandle> graphs_;  // by slot; null: free
  int64_t gap_ns_ = 0;                     // between two stamps with nothing between them
};

}  // namespace warpcall
