#include "server/self_test/rate.h"

#include <algorithm>
#include <vector>

#include "proto/common/status_macros.h"

namespace warpcall::self_test {
namespace {

// As in the server's history of jobs: shorter runs mostly measure fixed costs.
constexpr int64_t kLongEnoughNs = 1'000'000;
constexpr int64_t kElementsMin = 1024;
constexpr int kRuns = 2;
// Other programs, and threads that wait for a core, only lengthen a run. A run that seems long is
// therefore repeated.
constexpr int kRunsOfLong = 4;
// Rate of FLOPs that take no time beside the bytes.
constexpr double kFree = 1e9;
// Shorter copies measure little but reading the clock.
constexpr int64_t kCopyNsMin = 10'000;

int64_t TotalNs(const StreamTimes& times) { return times.h2d_ns + times.kernel_ns + times.d2h_ns; }

double Rate(int64_t amount, int64_t ns) {
  return static_cast<double>(std::max<int64_t>(amount, 1)) /
         static_cast<double>(std::max<int64_t>(ns, 1));
}

absl::StatusOr<Problem> ProblemOf(const RatePlan& plan, int64_t elements) {
  std::vector<TensorSpec> specs;
  for (const Dims& dims : plan.sized(elements)) specs.push_back({plan.data_type, dims});
  return MakeProblem(*plan.op, specs, {});
}

absl::StatusOr<bool> FlopsGrowFaster(const RatePlan& plan) {
  ASSIGN_OR_RETURN(const Problem small, ProblemOf(plan, kElementsMin));
  ASSIGN_OR_RETURN(const Problem large, ProblemOf(plan, 64 * kElementsMin));
  const Work few = plan.op->work(small);
  const Work many = plan.op->work(large);
  return Rate(many.flops, many.bytes) > 1.5 * Rate(few.flops, few.bytes);
}

absl::StatusOr<TimedRun> BestRun(const Work& work,
                                 absl::FunctionRef<absl::StatusOr<StreamTimes>()> run) {
  TimedRun best = {work, {}};
  int runs = kRuns;
  for (int i = 0; i < runs; ++i) {
    ASSIGN_OR_RETURN(const StreamTimes times, run());
    if (i == 0 || TotalNs(times) < TotalNs(best.times)) best.times = times;
    if (i == kRuns - 1 && best.times.kernel_ns >= kLongEnoughNs) runs = kRunsOfLong;
  }
  return best;
}

}  // namespace

ServiceRate RateOf(const TimedRun& small, const TimedRun& large, const RateKind& kind) {
  const bool one = small.work.bytes == large.work.bytes;
  const int64_t fixed_ns = one ? 0 : TotalNs(small.times);
  ServiceRate rate;
  rate.fixed_ns = static_cast<double>(fixed_ns);
  if (!kind.by_flops) {
    rate.bytes_per_ns = Rate(large.work.bytes, TotalNs(large.times) - fixed_ns);
    rate.flops_per_ns = kFree;
    return rate;
  }
  const int64_t copies_ns = large.times.h2d_ns + large.times.d2h_ns;
  rate.bytes_per_ns =
      copies_ns < kCopyNsMin ? kind.memory_bytes_per_ns : Rate(large.work.bytes, copies_ns);
  rate.flops_per_ns =
      Rate(large.work.flops, large.times.kernel_ns - (one ? 0 : small.times.kernel_ns));
  return rate;
}

absl::StatusOr<ServiceRate> MeasureRate(
    const RatePlan& plan, absl::FunctionRef<absl::StatusOr<StreamTimes>(const Problem&)> run) {
  RateKind kind{.by_flops = false, .memory_bytes_per_ns = plan.memory_bytes_per_ns};
  ASSIGN_OR_RETURN(kind.by_flops, FlopsGrowFaster(plan));
  TimedRun small;
  TimedRun large;
  for (int64_t elements = kElementsMin; elements <= plan.elements_max;
       elements *= plan.elements_step) {
    ASSIGN_OR_RETURN(const Problem problem, ProblemOf(plan, elements));
    ASSIGN_OR_RETURN(large, BestRun(plan.op->work(problem), [&] { return run(problem); }));
    // A smaller problem that took longer was held up, for good in a library that made itself ready.
    if (elements == kElementsMin || TotalNs(large.times) < TotalNs(small.times)) small = large;
    if (large.times.kernel_ns - small.times.kernel_ns >= kLongEnoughNs) break;
  }
  return RateOf(small, large, kind);
}

}  // namespace warpcall::self_test
