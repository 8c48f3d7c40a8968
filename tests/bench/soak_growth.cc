#include "tests/bench/soak_growth.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace warpcall::bench {
namespace {

constexpr double kErrors = 2;

double Mean(absl::Span<const double> values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

}  // namespace

std::vector<double> BlockMinima(absl::Span<const double> values, size_t block) {
  std::vector<double> minima;
  for (size_t i = 0; i + block <= values.size(); i += block)
    minima.push_back(*std::min_element(values.begin() + i, values.begin() + i + block));
  return minima;
}

std::optional<Slope> FitSlope(absl::Span<const double> x, absl::Span<const double> y) {
  if (x.size() < 3) return std::nullopt;
  const double mean_x = Mean(x);
  const double mean_y = Mean(y);
  double xx = 0;
  double xy = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    xx += (x[i] - mean_x) * (x[i] - mean_x);
    xy += (x[i] - mean_x) * (y[i] - mean_y);
  }
  if (xx == 0) return std::nullopt;
  Slope slope = {xy / xx};
  double residuals = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double residual = y[i] - mean_y - slope.value * (x[i] - mean_x);
    residuals += residual * residual;
  }
  slope.error = std::sqrt(residuals / static_cast<double>(x.size() - 2) / xx);
  return slope;
}

const char* GrowthName(Growth growth) {
  switch (growth) {
    case Growth::kFlat:
      return "flat";
    case Growth::kUndecided:
      return "undecided";
    case Growth::kGrows:
      return "grows";
  }
  return "unknown";
}

Growth JudgeGrowth(const Slope& growth, double bound) {
  if (growth.value + kErrors * growth.error <= bound) return Growth::kFlat;
  if (growth.value - kErrors * growth.error > bound) return Growth::kGrows;
  return Growth::kUndecided;
}

}  // namespace warpcall::bench
