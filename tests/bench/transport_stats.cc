#include "tests/bench/transport_stats.h"

#include <algorithm>
#include <cmath>

namespace warpcall::bench {

double Percentile(const std::vector<double>& sorted, double fraction) {
  if (sorted.empty()) return 0;
  const double rank = std::ceil(fraction * static_cast<double>(sorted.size()));
  return sorted[static_cast<size_t>(std::max(rank, 1.0)) - 1];
}

Figures Summarize(Tally tally, size_t bytes) {
  std::sort(tally.latencies_us.begin(), tally.latencies_us.end());
  Figures figures;
  figures.requests = static_cast<int64_t>(tally.latencies_us.size());
  figures.p50_us = Percentile(tally.latencies_us, 0.5);
  figures.p99_us = Percentile(tally.latencies_us, 0.99);
  figures.p999_us = Percentile(tally.latencies_us, 0.999);
  if (figures.requests == 0 || tally.wall_seconds <= 0) return figures;
  const auto requests = static_cast<double>(figures.requests);
  figures.requests_per_second = requests / tally.wall_seconds;
  figures.gigabytes_per_second = figures.requests_per_second * static_cast<double>(bytes) * 1e-9;
  figures.server_cpu_us = tally.server_cpu_seconds / requests * 1e6;
  return figures;
}

}  // namespace warpcall::bench
