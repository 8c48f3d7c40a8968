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
  // Standard error, for independent residuals. Residuals of resident memory are not independent (an
  // allocator keeps memory for a while), so the true error is larger.
  double error = 0;
};

// Minimum of each `block` consecutive values;
// the values left over at the end are dropped.
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
