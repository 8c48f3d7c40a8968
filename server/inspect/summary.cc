#include "server/inspect/summary.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>

namespace warpcall::inspect {
namespace {

constexpr double kStandardErrors = 1.96;  // to either side: 95 % of a normal distribution
constexpr double kTail = 0.025;
// Up to this count 2^-count is not subnormal, and the binomial distribution is summed up.
constexpr size_t kSummedMax = 1000;

// The place, from 1, of the sample at the lower end of the median's interval among `count` sorted
// samples. Each sample lies below the true median with a probability of 1/2, so that fewer than
// `place` samples do with a probability of 2.5 % at most.
size_t LowerEnd(size_t count) {
  if (count > kSummedMax) {
    const auto n = static_cast<double>(count);
    return static_cast<size_t>((n - kStandardErrors * std::sqrt(n)) / 2);
  }
  double probability = std::pow(0.5, static_cast<double>(count));  // that `place` lie below it
  double sum = probability;
  size_t place = 0;
  while (sum <= kTail) {
    probability *= static_cast<double>(count - place) / static_cast<double>(place + 1);
    sum += probability;
    ++place;
  }
  return std::max<size_t>(place, 1);
}

}  // namespace

Summary Summarize(std::vector<double> samples) {
  if (samples.empty()) return {};
  std::sort(samples.begin(), samples.end());
  const size_t count = samples.size();
  Summary summary;
  summary.mean = std::accumulate(samples.begin(), samples.end(), 0.0) / static_cast<double>(count);
  summary.median = (samples[(count - 1) / 2] + samples[count / 2]) / 2;
  summary.min = samples.front();
  summary.p10 = samples[(count + 9) / 10 - 1];
  summary.p90 = samples[(count * 9 + 9) / 10 - 1];
  const size_t place = LowerEnd(count);
  summary.median_low = samples[place - 1];
  summary.median_high = samples[count - place];
  if (summary.median > 0)
    summary.noise =
        (summary.median_high - summary.median_low) / 2 / kStandardErrors / summary.median;
  return summary;
}

double Drift(const std::vector<double>& samples, int blocks) {
  const auto count = static_cast<ptrdiff_t>(samples.size());
  if (count < blocks) return 0;
  std::vector<double> medians;
  for (ptrdiff_t block = 0; block < blocks; ++block)
    medians.push_back(Summarize({samples.begin() + count * block / blocks,
                                 samples.begin() + count * (block + 1) / blocks})
                          .median);
  const auto [least, largest] = std::minmax_element(medians.begin(), medians.end());
  return *least > 0 ? *largest / *least - 1 : 0;
}

}  // namespace warpcall::inspect
