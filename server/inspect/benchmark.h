// Times implementations of one problem on a device, side by side, with no transfers between.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "kernels/multiply_adds.h"
#include "kernels/registry.h"
#include "server/engine/clock.h"
#include "server/inspect/conditions_seen.h"
#include "server/inspect/surroundings.h"
#include "server/runtime/conditions.h"
#include "server/runtime/device.h"

namespace warpcall::inspect {

struct BenchmarkPlan {
  const Kernel* kernel = nullptr;
  std::vector<const Row*> rows;  // each gets a result, in this order
  Problem problem;
  int warmup_iterations = 10;  // launches
  int iterations = 100;        // samples, each of launches_per_iteration launches
  uint64_t seed = 0;           // of the inputs: N(0, 1), the same for a seed whatever the device
  // A row whose median has at most this relative standard error gets no more samples; 0: by
  // iterations and time alone.
  double max_noise = 0;
  int64_t timeout_ns = 0;             // for one row; 0: the limits'
  int64_t deadline_ns = kNoDeadline;  // by the site's clock: what is not measured then is left
};

struct BenchmarkLimits {
  // For one row where the plan has no timeout: a row whose launch would take half of it is skipped.
  int64_t row_ns_max = 10'000'000'000;
  // There, after so long a few samples will do.
  int64_t row_ns_enough = 1'000'000'000;
  // For computing the reference that outputs are compared with.
  int64_t reference_ns_max = 500'000'000;
};

struct BenchmarkResult {
  const Row* row = nullptr;
  absl::Status status;  // why it did not run; then nothing below is set but predicted_ns
  // What a launch of a row that was skipped would take.
  double predicted_ns = 0;
  int64_t iterations = 0;
  int64_t launches_per_iteration = 0;
  // Times of one launch, by the device's clock.
  double mean_ns = 0;
  double median_ns = 0;
  double min_ns = 0;
  double p10_ns = 0;
  double p90_ns = 0;
  // Summary's.
  double median_low_ns = 0;
  double median_high_ns = 0;
  double noise = 0;
  // Too noisy to rank: its noise is above kNoiseMax or not known, more than a quarter of the
  // samples were disturbed, or, on a CPU, the medians of their four quarters, or the median and the
  // fastest tenth, are further apart than kSpreadMax: of a row that has two speeds the median is
  // the one that it happened to have more often.
  bool unstable = false;
  // By Rank(), of all results: "fastest", "not distinguishable from the fastest", "slower by N %".
  // Empty when it is unstable, unless its interval lies below those of all stable ones.
  std::string verdict;
  // |out - ref| / |ref| (Euclidean) against the definition in float64, over checked_elements spread
  // over output 0; see OutputError. A right result has the rounding's: at most 2^-24 in float32,
  // 2^-11 in float16 and 2^-8 in bfloat16 where nothing is subnormal. 0 of 0 elements where the op
  // has no definition.
  double relative_error = 0;
  int64_t checked_elements = 0;
  // OutputError's.
  double max_error = 0;
  LaunchShape shape;  // zeros where the row has none
};

inline constexpr double kNoiseMax = 0.05;
inline constexpr double kSpreadMax = 0.15;

struct BenchmarkReport {
  // CopyCeiling's for the problem's bytes, sampled between the rows' samples; 0 where it could not
  // be measured.
  double ceiling_bytes_per_second = 0;
  // FlopsCeiling's in the problem's ArithmeticOf, likewise; 0 where arithmetic cannot bound the
  // problem, but for float32 on CPUs.
  double flops_ceiling = 0;
  std::vector<BenchmarkResult> results;
  int64_t started_unix_ns = 0;
  int64_t samples_dropped = 0;  // taken while RunsSlowly
  ConditionsSeen conditions;
};

// Where and how a benchmark runs.
struct BenchmarkSite {
  const Registry* registry = nullptr;
  Device* device = nullptr;
  Surroundings* surroundings = nullptr;        // null: nothing disturbs it
  ConditionReader* conditions = nullptr;       // null: the device's are not known
  MultiplyAddsSource multiply_adds = nullptr;  // of the device's kind; null: none is known
  Clock clock = MonotonicNs;                   // of the host
  std::function<void(int64_t ns)> sleep = [](int64_t ns) { absl::SleepFor(absl::Nanoseconds(ns)); };
  // Called with results as they come, each once and without a verdict, beside the ceilings as they
  // are then known.
  std::function<void(const BenchmarkReport&)> tell = nullptr;
};

// Times the plan's rows, the fastest first: those whose speeds are close to each other in turn,
// sample by sample, and copies between them; each launch on the next of several equal sets of
// operands. On a CPU the samples of fast rows come in four blocks, over 300 ms at least. A row that
// fails, or for which there is no time, says so in its result; an error here is the whole run's: a
// plan out of range, no memory for the operands, a lost device. The calling thread becomes the
// device's, as by Stream::BindThread. The report has all results, with their verdicts.
absl::StatusOr<BenchmarkReport> RunBenchmark(const BenchmarkSite& site, const BenchmarkPlan& plan,
                                             const BenchmarkLimits& limits);

// Memory that RunBenchmark takes for the operands of `problem` at most, on the host or a device;
// beside it rows' workspaces, for copies as much again, up to 2 GiB, and, where the problem cannot
// be cut, one set of operands for smaller ones by which rows are predicted.
int64_t BenchmarkBytes(const Problem& problem);

}  // namespace warpcall::inspect
