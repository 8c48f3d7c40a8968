// Times implementations of one problem on a device, side by side, with no transfers between.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "kernels/multiply_adds.h"
#include "kernels/reads.h"
#include "kernels/registry.h"
#include "server/engine/clock.h"
#include "server/inspect/operand_sets.h"
#include "server/inspect/row_timer.h"
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
  uint64_t seed = 0;           // inputs are N(0, 1), equal on all devices for one seed
  // A row whose median has at most this relative standard error gets no more samples. 0: only
  // iterations and time count.
  double max_noise = 0;
  int64_t timeout_ns = 0;  // for one row; 0: the limits'
  // Each row runs by itself until the device's clock has settled, and is then timed without a rest
  // (LoadMeter). Iterations and noise do not count then.
  bool settled = false;
  int64_t deadline_ns = kNoDeadline;  // by the site's clock: rows not measured by then are left out
};

struct BenchmarkLimits {
  // One row's time if the plan has no timeout. A row whose launch would take half of it is skipped.
  int64_t row_ns_max = 10'000'000'000;
  // After this part of row_ns_max, a few samples are enough.
  int64_t row_ns_enough = 1'000'000'000;
  // Time to compute the reference that outputs are compared with.
  int64_t reference_ns_max = 500'000'000;
};

// A result is unstable, too noisy to rank, if its noise is above kNoiseMax or unknown, or if more
// than a quarter of its samples were disturbed. On a CPU it is also unstable if the medians of its
// quarters, or its median and fastest tenth, differ by more than kSpreadMax: the median of a row
// with two speeds is only the speed that came more often.
inline constexpr double kNoiseMax = 0.05;
inline constexpr double kSpreadMax = 0.15;

// Looks at the operands around the samples of rows, in time that is not the rows'.
class SampleWitness {
 public:
  virtual ~SampleWitness() = default;
  // An error of either ends the row with its message.
  virtual absl::Status Before(const Row& row, OperandSets* sets) = 0;
  virtual absl::Status After(const Row& row, OperandSets* sets, RowTimer::SetsUsed used) = 0;
};

// Where and how a benchmark runs.
struct BenchmarkSite {
  const Registry* registry = nullptr;
  Device* device = nullptr;
  Surroundings* surroundings = nullptr;   // null: nothing disturbs it
  ConditionReader* conditions = nullptr;  // null: unknown conditions
  // For the device's kind; null: none is known.
  MultiplyAddsSource multiply_adds = nullptr;
  ReadsSource reads = nullptr;
  Clock clock = MonotonicNs;  // the host's
  std::function<void(int64_t ns)> sleep = [](int64_t ns) { absl::SleepFor(absl::Nanoseconds(ns)); };
  // Null: nobody looks. It may write other inputs, once all rows' outputs were checked.
  SampleWitness* witness = nullptr;
  // Called with results as they come, each once and without a verdict, together with the ceilings
  // as known by then.
  std::function<void(const v1::BenchmarkResponse&)> tell = nullptr;
};

// Times the plan's rows, the fastest first. Rows of similar speed take turns, sample by sample,
// with copies between them; each launch uses the next of several equal sets of operands. On a CPU
// the samples of fast rows come in four blocks, over 300 ms at least. If a row does not run on the
// device, fails, or gets no time, its result has the reason. A returned error concerns the whole
// run: a plan out of range, no memory for the operands, a lost device. The calling thread is bound
// to the device, as by Stream::BindThread.
//
// The response has all results in the order of the plan's rows, with verdicts from Rank(). Its
// stamp lacks the versions of the server and of CUDA. The ceilings are MemoryCeiling's of copies
// for the problem's bytes, and of reads if the problem ReadsAlmostOnly, and FlopsCeiling's in its
// ArithmeticOf, sampled between the rows' samples. They are 0 if not measurable, or if arithmetic
// cannot bound the problem (except float32 on CPUs). A row's fraction_of_ceiling is of the reads if
// these were measured, or else of the copies. A result's errors are OutputError's: a right
// relative_error is the rounding's, at most 2^-24 in float32, 2^-11 in float16 and 2^-8 in bfloat16
// where nothing is subnormal; it is 0 over 0 checked elements where the op has no definition.
absl::StatusOr<v1::BenchmarkResponse> RunBenchmark(const BenchmarkSite& site,
                                                   const BenchmarkPlan& plan,
                                                   const BenchmarkLimits& limits);

// Upper bound of RunBenchmark's memory for the operands of `problem`, on the host or a device. Not
// included: workspaces; as much again for copies, up to 2 GiB; and, for a problem that cannot be
// cut, one set of operands of the smaller problems that predict it.
int64_t BenchmarkBytes(const Problem& problem);

}  // namespace warpcall::inspect
