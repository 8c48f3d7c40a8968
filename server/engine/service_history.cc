#include "server/engine/service_history.h"

#include <algorithm>
#include <bit>

#include "kernels/common/saturate.h"

namespace warpcall {
namespace {

// Before the first jobs of a size have run, the mean is of too few, and the first may have loaded
// libraries.
constexpr int kSamplesMin = 4;
// Weight of the newest sample in the mean: it follows a change within some ten jobs.
constexpr int64_t kNewestShare = 8;
constexpr int64_t kDoubtShare = 8;
// A byte takes about as long as this many FLOPs where both matter.
constexpr int64_t kFlopsPerByte = 16;

// What nobody has measured: the link to the host, the arithmetic and a fixed part, at rates that
// few devices exceed (an H200: both directions of PCIe, float32 matmul, a small request).
int64_t GuessNs(const Work& work) {
  constexpr double kFixedNs = 15'000;
  constexpr double kBytesPerNs = 50;
  constexpr double kFlopsPerNs = 40'000;
  return static_cast<int64_t>(kFixedNs + static_cast<double>(work.bytes) / kBytesPerNs +
                              static_cast<double>(work.flops) / kFlopsPerNs);
}

}  // namespace

size_t ServiceHistory::IndexOf(int row, const Work& work) const {
  const auto size = static_cast<uint64_t>(SaturatingAdd(work.bytes, work.flops / kFlopsPerByte));
  const int size_class = std::min(static_cast<int>(std::bit_width(size)), kSizes - 1);
  return static_cast<size_t>(row * kSizes + size_class);
}

ServiceHistory::Prediction ServiceHistory::Predict(int row, const Work& work) const {
  const Cell& cell = cells_[IndexOf(row, work)];
  if (cell.samples.load(std::memory_order_relaxed) < kSamplesMin) return {GuessNs(work), false};
  return {cell.mean_ns.load(std::memory_order_relaxed), true};
}

void ServiceHistory::Note(int row, const Work& work, int64_t ns) {
  Cell& cell = cells_[IndexOf(row, work)];
  const int samples = cell.samples.load(std::memory_order_relaxed);
  const int64_t mean = cell.mean_ns.load(std::memory_order_relaxed);
  // The first few count alike, but the very first gives way to the second.
  const int64_t share = std::clamp<int64_t>(samples, 1, kNewestShare);
  cell.mean_ns.store(mean + (ns - mean) / share, std::memory_order_relaxed);
  if (samples <= kNewestShare) cell.samples.store(samples + 1, std::memory_order_relaxed);
}

void ServiceHistory::Doubt(int row, const Work& work) {
  Cell& cell = cells_[IndexOf(row, work)];
  const int64_t mean = cell.mean_ns.load(std::memory_order_relaxed);
  cell.mean_ns.store(mean - mean / kDoubtShare, std::memory_order_relaxed);
}

}  // namespace warpcall
