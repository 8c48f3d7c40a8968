#include "server/inspect/summary.h"

#include <algorithm>
#include <cstddef>
#include <numeric>

namespace warpcall::inspect {

Summary Summarize(std::vector<double> samples) {
  if (samples.empty()) return {};
  std::sort(samples.begin(), samples.end());
  const size_t count = samples.size();
  Summary summary;
  summary.mean = std::accumulate(samples.begin(), samples.end(), 0.0) / static_cast<double>(count);
  summary.median = (samples[(count - 1) / 2] + samples[count / 2]) / 2;
  summary.min = samples.front();
  summary.p90 = samples[(count * 9 + 9) / 10 - 1];
  return summary;
}

}  // namespace warpcall::inspect
