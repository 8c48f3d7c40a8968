// Decides whether memory sampled over requests is flat.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/types/span.h"

namespace warpcall::bench {

struct Slope {
  double value = 0;
  // Standard error, for residuals that know nothing of each other. Those of resident memory do
  // (what an allocator keeps, it keeps for a while), so the true error is larger.
  double error = 0;
};

// The least of each `block` values that follow one another; what is left over at the end is
// dropped.
std::vector<double> BlockMinima(absl::Span<const double> values, size_t block);

// The slope of the line through the points by least squares; nothing for fewer than three points
// and for points above each other. `x` and `y` have one length.
std::optional<Slope> FitSlope(absl::Span<const double> x, absl::Span<const double> y);

enum class Growth : uint8_t { kFlat, kUndecided, kGrows };

// "flat", "undecided", "grows".
const char* GrowthName(Growth growth);

// Flat: at most `bound`, two standard errors included. Grows: more than `bound` by as much.
Growth JudgeGrowth(const Slope& growth, double bound);

}  // namespace warpcall::bench
