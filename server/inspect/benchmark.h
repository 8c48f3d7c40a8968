// Times implementations of one problem on a device, side by side, with no transfers between.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/registry.h"
#include "server/runtime/device.h"

namespace warpcall::inspect {

struct BenchmarkPlan {
  const Kernel* kernel = nullptr;
  std::vector<const Row*> rows;  // each gets a result, in this order
  Problem problem;
  int warmup_iterations = 10;  // launches
  int iterations = 100;        // samples, each of launches_per_iteration launches
  uint64_t seed = 0;           // of the inputs: N(0, 1), the same for a seed whatever the device
};

struct BenchmarkLimits {
  // For timing one row; then it has the samples it has, at least one.
  int64_t row_ns_max = 1'000'000'000;
  // For computing the reference that outputs are compared with.
  int64_t reference_ns_max = 500'000'000;
};

struct BenchmarkResult {
  const Row* row = nullptr;
  absl::Status status;  // why it did not run; then nothing below is set
  int64_t iterations = 0;
  int64_t launches_per_iteration = 0;
  // Times of one launch, by the device's clock.
  double mean_ns = 0;
  double median_ns = 0;
  double min_ns = 0;
  double p90_ns = 0;
  // |out - ref| / |ref| (Euclidean) against the definition in float64, over checked_elements spread
  // over output 0; see OutputError. A right result has the rounding's: at most 2^-24 in float32,
  // 2^-11 in float16 and 2^-8 in bfloat16 where nothing is subnormal. 0 of 0 elements where the op
  // has no definition.
  double relative_error = 0;
  int64_t checked_elements = 0;
  LaunchShape shape;  // zeros where the row has none
};

struct BenchmarkReport {
  // MeasureCopyBandwidth, in the same run; 0 where it could not be measured.
  double ceiling_bytes_per_second = 0;
  std::vector<BenchmarkResult> results;
};

// Times the plan's rows in turn, sample by sample, each launch on the next of several equal sets of
// operands. A row that fails says so in its result; an error here is the whole run's: a plan out of
// range, no memory for the operands, a lost device. The calling thread becomes the device's, as by
// Stream::BindThread.
absl::StatusOr<BenchmarkReport> RunBenchmark(const Registry& registry, Device* device,
                                             const BenchmarkPlan& plan,
                                             const BenchmarkLimits& limits);

// What copying costs at best on the device: bytes read plus bytes written a second, by the fastest
// row of "identity", over more memory than the caches hold. NOT_FOUND without such a kernel. The
// calling thread becomes the device's.
absl::StatusOr<double> MeasureCopyBandwidth(const Registry& registry, Device* device);

// Memory that RunBenchmark takes for the operands of `problem` at most, on the host or a device;
// beside it rows' workspaces, and before it MeasureCopyBandwidth's 2 GiB.
int64_t BenchmarkBytes(const Problem& problem);

}  // namespace warpcall::inspect
