#include "server/engine/service_history.h"

#include <algorithm>
#include <bit>

#include "kernels/common/saturate.h"
#include "proto/common/check.h"

namespace warpcall {
namespace {

// With fewer samples of a size, the mean is of too few jobs, and the first may have loaded
// libraries.
constexpr int kSamplesMin = 4;
// Weight of the newest sample in the mean: it follows a change within some ten jobs.
constexpr int64_t kNewestShare = 8;
// A mean this many times a job of its size comes from a job with other work to do, such as loading
// its kernel (0.4 s for 20 us): the new sample replaces it.
constexpr int64_t kOutlier = 8;
constexpr int64_t kLoweredShare = 8;
// A byte takes about as long as this many FLOPs where both matter.
constexpr int64_t kFlopsPerByte = 16;

// Upper bound of a prediction, eleven days: sums of many stay far from an int64's end.
constexpr double kPredictedNsMax = 1e15;
// Jobs shorter than this show fixed costs more than a rate.
constexpr int64_t kRateNsMin = 1'000'000;
constexpr double kNewestRateShare = 0.25;
// A job of less work that was long, because of a library load or a busy machine, says nothing about
// megabytes; one of little more says little.
constexpr double kRateWorkNsMin = 100'000;
// Work of other sizes than a rate's own runs at most this factor slower or faster (caches, tails, a
// busy machine then or now).
constexpr int64_t kRateErrorMax = 4;

int64_t ToNs(double ns) { return static_cast<int64_t>(std::min(ns, kPredictedNsMax)); }

double WorkNs(const Work& work, double bytes_per_ns, double flops_per_ns) {
  return static_cast<double>(work.bytes) / bytes_per_ns +
         static_cast<double>(work.flops) / flops_per_ns;
}

// An unmeasured prediction: the link to the host, the arithmetic and a fixed part, at rates that
// few devices exceed (an H200: both directions of PCIe, float32 matmul, a small request).
int64_t GuessNs(const Work& work) {
  constexpr double kFixedNs = 15'000;
  constexpr double kBytesPerNs = 50;
  constexpr double kFlopsPerNs = 40'000;
  return ToNs(kFixedNs + WorkNs(work, kBytesPerNs, kFlopsPerNs));
}

// The upper bound: plain float64 loops with data from memory on a slow machine. 36 ns an element of
// gelu, 8 a product.
int64_t GuessNsAtMost(const Work& work) {
  constexpr double kFixedNs = 100'000;
  constexpr double kBytesPerNs = 1;
  constexpr double kFlopsPerNs = 0.25;
  return ToNs(kFixedNs + WorkNs(work, kBytesPerNs, kFlopsPerNs));
}

}  // namespace

size_t ServiceHistory::IndexOf(int row, const TimedWork& timed) const {
  const Work& work = timed.work;
  WARPCALL_DCHECK(work.bytes >= 0 && work.flops >= 0, work.bytes, work.flops);
  const auto size = static_cast<uint64_t>(SaturatingAdd(work.bytes, work.flops / kFlopsPerByte));
  const int size_class = std::min(static_cast<int>(std::bit_width(size)), kSizes - 1);
  WARPCALL_CHECK(row >= 0 && static_cast<size_t>(row) < rates_.size(), row, rates_.size());
  return static_cast<size_t>((2 * row + (timed.has_residents ? 1 : 0)) * kSizes + size_class);
}

ServiceHistory::Prediction ServiceHistory::Predict(int row, const TimedWork& timed) const {
  const Work& work = timed.work;
  const Cell& cell = cells_[IndexOf(row, timed)];
  if (cell.samples.load(std::memory_order_relaxed) >= kSamplesMin) {
    const int64_t mean_ns = cell.mean_ns.load(std::memory_order_relaxed);
    return {mean_ns, mean_ns, mean_ns, Basis::kMeasured};
  }
  const Rate& rate = rates_[static_cast<size_t>(row)];
  const double slowness = rate.slowness.load(std::memory_order_relaxed);
  if (slowness == 0 && !rate.set.load(std::memory_order_acquire))
    return {GuessNs(work), GuessNsAtMost(work), GuessNs(work), Basis::kGuess};
  const double fixed_ns = rate.fixed_ns.load(std::memory_order_relaxed);
  const double work_ns = WorkNs(work, rate.bytes_per_ns.load(std::memory_order_relaxed),
                                rate.flops_per_ns.load(std::memory_order_relaxed));
  const int64_t ns = ToNs(fixed_ns + (slowness == 0 ? 1 : slowness) * work_ns);
  // One slow job may have had other work to do, and the next be no slower than the trials.
  const int64_t ns_without_it = ToNs(fixed_ns + work_ns);
  const bool is_rated = rate.set.load(std::memory_order_relaxed);
  const int64_t ns_at_least = is_rated ? std::min(ns, ns_without_it) : ns;
  return {ns, kRateErrorMax * ns, ns_at_least / kRateErrorMax, Basis::kRate};
}

void ServiceHistory::SetRate(int row, const ServiceRate& given) {
  WARPCALL_CHECK(row >= 0 && static_cast<size_t>(row) < rates_.size(), row, rates_.size());
  WARPCALL_DCHECK(given.bytes_per_ns > 0 && given.flops_per_ns > 0, given.bytes_per_ns,
                  given.flops_per_ns);
  Rate& rate = rates_[static_cast<size_t>(row)];
  rate.fixed_ns.store(given.fixed_ns, std::memory_order_relaxed);
  rate.bytes_per_ns.store(given.bytes_per_ns, std::memory_order_relaxed);
  rate.flops_per_ns.store(given.flops_per_ns, std::memory_order_relaxed);
  rate.set.store(true, std::memory_order_release);
}

void ServiceHistory::LearnRate(int row, const Work& work, int64_t ns) {
  Rate& rate = rates_[static_cast<size_t>(row)];
  const double by_rate_ns = WorkNs(work, rate.bytes_per_ns.load(std::memory_order_relaxed),
                                   rate.flops_per_ns.load(std::memory_order_relaxed));
  const double seen_ns = static_cast<double>(ns) - rate.fixed_ns.load(std::memory_order_relaxed);
  const double seen = seen_ns / (by_rate_ns + kRateWorkNsMin);
  const double known = rate.slowness.load(std::memory_order_relaxed);
  if (ns < kRateNsMin && known * by_rate_ns > kOutlier * static_cast<double>(ns))
    rate.slowness.store(1, std::memory_order_relaxed);
  if (ns < kRateNsMin || by_rate_ns < kRateWorkNsMin || seen_ns <= 0) return;
  rate.slowness.store(known == 0 ? seen : known + (seen - known) * kNewestRateShare,
                      std::memory_order_relaxed);
}

void ServiceHistory::Record(int row, const TimedWork& timed, int64_t ns) {
  Cell& cell = cells_[IndexOf(row, timed)];
  const int samples = cell.samples.load(std::memory_order_relaxed);
  const int64_t mean = cell.mean_ns.load(std::memory_order_relaxed);
  // The first few samples count alike, but the very first gives way to the second.
  const int64_t share = ns < mean / kOutlier ? 1 : std::clamp<int64_t>(samples, 1, kNewestShare);
  cell.mean_ns.store(mean + (ns - mean) / share, std::memory_order_relaxed);
  if (samples <= kNewestShare) cell.samples.store(samples + 1, std::memory_order_relaxed);
  if (!timed.has_residents) LearnRate(row, timed.work, ns);
}

void ServiceHistory::RecordAtLeast(int row, const TimedWork& timed, int64_t ns) {
  if (ns > Predict(row, timed).ns) Record(row, timed, ns);
}

void ServiceHistory::LowerPrediction(int row, const TimedWork& timed) {
  Cell& cell = cells_[IndexOf(row, timed)];
  const int64_t mean = cell.mean_ns.load(std::memory_order_relaxed);
  cell.mean_ns.store(mean - mean / kLoweredShare, std::memory_order_relaxed);
  if (cell.samples.load(std::memory_order_relaxed) >= kSamplesMin) return;
  Rate& rate = rates_[static_cast<size_t>(row)];
  const double known = rate.slowness.load(std::memory_order_relaxed);
  if (known == 0 && !rate.set.load(std::memory_order_acquire)) return;  // a guess, not a rate
  rate.slowness.store((known == 0 ? 1 : known) * (1 - 1.0 / kLoweredShare),
                      std::memory_order_relaxed);
}

}  // namespace warpcall
