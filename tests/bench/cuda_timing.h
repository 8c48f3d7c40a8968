// Device time of kernels as a server that is busy sees it: graphs of many launches over rotating
// buffers, so that neither launch gaps nor a warm L2 flatter.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/op.h"

namespace warpcall::bench {

// N(0, 1), a different sequence for every seed.
absl::Status FillNormal(const TensorSpec& spec, uint64_t seed, void* device_memory);

// One candidate: `enqueue` puts launch number i on the stream.
struct Candidate {
  std::function<absl::Status(int i, cudaStream_t stream)> enqueue;
  // False: launches are timed as they are. A copy in a graph is not the copy outside of one: on an
  // H200 it reached 2766 GB/s instead of 4298.
  bool in_graph = true;

  // Set by Time.
  absl::Status status;  // RESOURCE_EXHAUSTED where every sample was dropped
  int64_t dropped = 0;  // samples
  double seconds = 0;   // per launch, median
  double seconds_p10 = 0;
  double seconds_p90 = 0;
};

inline constexpr int kSamplesMax = 31;  // per candidate

// Times the candidates in turn, over and over, so that all see the same state of the device, which
// rests after each sample as long as that took: one that is held down by its power is compared with
// itself in another program. A sample after which `runs_slowly` says so is dropped; null: none is.
void Time(std::vector<Candidate>& candidates, cudaStream_t stream,
          const std::function<bool()>& runs_slowly = nullptr, int samples_max = kSamplesMax);

// Runs a candidate in samples of 50 ms, one after the other without a rest, until `goes_on` returns
// false. `goes_on` is called after each sample with the seconds of a launch and the launches.
absl::Status RunSteadily(const Candidate& candidate, cudaStream_t stream,
                         const std::function<bool(double seconds, int64_t launches)>& goes_on);

struct Ceilings {
  double copy_bytes_per_second = 0;  // device to device, read + written
  double read_bytes_per_second = 0;  // of device memory, nothing written
  double h2d_bytes_per_second = 0;   // pinned
  double d2h_bytes_per_second = 0;
  double both_ways_bytes_per_second = 0;  // sum of both directions at once
};
absl::StatusOr<Ceilings> MeasureCeilings(const DeviceProperties& device);

}  // namespace warpcall::bench
