// Times implementations of one problem on a device, side by side, with no transfers between.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "kernels/multiply_adds.h"
#include "kernels/registry.h"
#include "server/engine/clock.h"
#include "server/inspect/surroundings.h"
#include "server/runtime/conditions.h"
#include "server/runtime/device.h"
#include "warpcall/v1/warpcall.pb.h"

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

// A result is unstable, too noisy to rank, where its noise is above kNoiseMax or not known, where
// more than a quarter of its samples were disturbed, and, on a CPU, where the medians of its four
// quarters, or its median and its fastest tenth, are further apart than kSpreadMax: the median of a
// row that has two speeds is the one that it happened to have more often.
inline constexpr double kNoiseMax = 0.05;
inline constexpr double kSpreadMax = 0.15;

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
  std::function<void(const v1::BenchmarkResponse&)> tell = nullptr;
};

// Times the plan's rows, the fastest first: those whose speeds are close to each other in turn,
// sample by sample, and copies between them; each launch on the next of several equal sets of
// operands. On a CPU the samples of fast rows come in four blocks, over 300 ms at least. A row that
// does not run on the device, that fails, or for which there is no time, says so in its result; an
// error here is the whole run's: a plan out of range, no memory for the operands, a lost device.
// The calling thread becomes the device's, as by Stream::BindThread.
//
// The response has all results in the order of the plan's rows, with their verdicts by Rank(). Its
// stamp lacks the versions of the server and of CUDA. The ceilings are CopyCeiling's for the
// problem's bytes and FlopsCeiling's in the problem's ArithmeticOf, sampled between the rows'
// samples; 0 where one could not be measured, or where arithmetic cannot bound the problem (but for
// float32 on CPUs). A result's errors are OutputError's: a right relative_error is the rounding's,
// at most 2^-24 in float32, 2^-11 in float16 and 2^-8 in bfloat16 where nothing is subnormal; it is
// 0 over 0 checked elements where the op has no definition.
absl::StatusOr<v1::BenchmarkResponse> RunBenchmark(const BenchmarkSite& site,
                                                   const BenchmarkPlan& plan,
                                                   const BenchmarkLimits& limits);

// Memory that RunBenchmark takes for the operands of `problem` at most, on the host or a device;
// beside it rows' workspaces, for copies as much again, up to 2 GiB, and, where the problem cannot
// be cut, one set of operands for smaller ones by which rows are predicted.
int64_t BenchmarkBytes(const Problem& problem);

}  // namespace warpcall::inspect
