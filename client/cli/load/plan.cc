#include "client/cli/load/plan.h"

#include <algorithm>
#include <cmath>

namespace warpcall::cli {
namespace {

// Keeps the two streams of a plan apart.
constexpr uint64_t kGapSeed = 0x9E3779B97F4A7C15u;

}  // namespace

EntryChooser::EntryChooser(absl::Span<const double> weights, uint64_t seed) : random_(seed) {
  double end = 0;
  for (const double weight : weights) ends_.push_back(end += weight);
}

size_t EntryChooser::Next() {
  const double point = random_.Next() * ends_.back();
  const auto entry = std::upper_bound(ends_.begin(), ends_.end(), point) - ends_.begin();
  // Rounding may put the point on the last end.
  return std::min(static_cast<size_t>(entry), ends_.size() - 1);
}

ArrivalPlan::ArrivalPlan(const Options& options)
    : rate_per_second_(options.rate_per_second),
      arrivals_(options.arrivals),
      chooser_(options.weights, options.seed),
      gaps_(options.seed ^ kGapSeed) {}

Arrival ArrivalPlan::Next() {
  if (arrivals_ == Arrivals::kPoisson) expected_ -= std::log1p(-gaps_.Next());
  const Arrival arrival{.planned_ns = std::llround(expected_ / rate_per_second_ * 1e9),
                        .entry = chooser_.Next()};
  if (arrivals_ == Arrivals::kUniform) expected_ += 1;
  return arrival;
}

}  // namespace warpcall::cli
