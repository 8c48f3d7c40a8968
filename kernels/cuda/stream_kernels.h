// Kernels that streams enqueue for themselves: the GPU's own clock, read in their order, small
// copies, and a comparison of memory.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"

namespace warpcall::cuda {

// Enqueues the writing of the GPU's nanosecond timer to *slot, in device memory.
absl::Status EnqueueTimestamp(cudaStream_t stream, int64_t* slot);

// Small copies between device memory and host memory that is mapped for the device, each aligned to
// 16 bytes at both ends. A kernel makes them in less time than it takes to begin one on the GPU's
// copy engines.
struct SmallCopies {
  static constexpr int kCountMax = 8;

  struct Copy {
    void* to;
    const void* from;
    size_t bytes;
  };
  Copy copies[kCountMax];
  int count = 0;
};

// Times of a piece of work by the GPU's nanosecond timer, in the order in which they come.
struct WorkTimes {
  int64_t start_ns;  // before its inputs are copied
  int64_t begin_ns;  // they are there
  int64_t done_ns;   // its kernels have run
  int64_t end_ns;    // its outputs are copied
};

// Enqueues copies of inputs, and the writing of their times to *times, in device memory.
absl::Status EnqueueBegin(cudaStream_t stream, const SmallCopies& inputs, WorkTimes* times);

// Enqueues copies of outputs, and then the writing of all times to *report, in host memory that is
// mapped for the device. A host that reads report->end_ns with acquire order and sees it changed
// sees everything that ran on the stream before, too.
absl::Status EnqueueReport(cudaStream_t stream, const SmallCopies& outputs, const WorkTimes* times,
                           WorkTimes* report);

struct Memories {
  const void* a;  // aligned to 16 bytes, as b is
  const void* b;
  size_t bytes;
};

// Enqueues a comparison. Writes 1 to *differs, in host memory that is mapped for the device, if a
// byte differs; otherwise leaves it.
absl::Status EnqueueCompare(cudaStream_t stream, const Memories& memories, uint32_t* differs);

}  // namespace warpcall::cuda
