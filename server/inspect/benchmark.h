// Times implementations of one problem on a device, side by side, with no transfers between.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/registry.h"
#include "server/runtime/device.h"

namespace warpcall::inspect {

struct BenchmarkPlan {
  const Kernel* kernel = nullptr;
  std::vector<const Row*> rows;  // of the device's kind; each gets a result, in this order
  Problem problem;
  int warmup_iterations = 10;
  int iterations = 100;
  uint64_t seed = 0;  // of the inputs: N(0, 1), the same for a seed whatever the device
};

struct BenchmarkLimits {
  // Of timing one row; then it has the samples it has, at least one.
  int64_t row_ns_max = 1'000'000'000;
  // Of computing the reference that outputs are compared with.
  int64_t reference_ns_max = 500'000'000;
};

struct BenchmarkResult {
  const Row* row = nullptr;
  absl::Status status;  // why it did not run
  int64_t iterations = 0;
  int64_t launches_per_iteration = 0;
  // Of one launch, by the device's clock.
  double mean_ns = 0;
  double median_ns = 0;
  double min_ns = 0;
  double p90_ns = 0;
  // |out - ref| / |ref| (Euclidean) against the definition in float64, over checked_elements.
  double relative_error = 0;
  int64_t checked_elements = 0;
  LaunchShape shape;
};

struct BenchmarkReport {
  double ceiling_bytes_per_second = 0;  // MeasureCopyBandwidth, in the same run
  std::vector<BenchmarkResult> results;
};

// A row that fails says so in its result; an error here is the whole run's.
absl::StatusOr<BenchmarkReport> RunBenchmark(const Registry& registry, Device* device,
                                             const BenchmarkPlan& plan,
                                             const BenchmarkLimits& limits);

// What copying costs at best on the device: bytes read plus bytes written a second, by the fastest
// row of "identity", over more memory than the caches hold.
absl::StatusOr<double> MeasureCopyBandwidth(const Registry& registry, Device* device);

// Memory that RunBenchmark takes for the operands of `problem` at most, on the host or a device.
int64_t BenchmarkBytes(const Problem& problem);

}  // namespace warpcall::inspect
