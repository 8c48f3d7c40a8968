// The axes of a plot: which values they show, and where.
#pragma once

#include <string>
#include <vector>

#include "absl/types/span.h"

namespace warpcall::cli {

struct Tick {
  double value = 0;
  std::string label;
};

// From `low` to `high`, evenly or by powers.
struct Axis {
  bool logarithmic = false;
  double low = 0;
  double high = 1;
  std::vector<Tick> ticks = {};  // within them, ascending, as many as stay readable

  // 0 at `low`, 1 at `high`; may lie outside. `value` is above 0 on a logarithmic axis.
  double Place(double value) const;
};

using Label = std::string (*)(double value);

// The axis of `values`, at least one and all above 0, with some room around them and never less
// than a decade. It has ticks at powers of 10, and at 2 and 5 times these where there is room.
Axis DecimalAxis(absl::Span<const double> values, Label label);
// Likewise with ticks at powers of 2, and never less than four octaves.
Axis BinaryAxis(absl::Span<const double> values, Label label);
// Even, from 0 to somewhat over the largest of `values`, at least to `high_min`.
Axis EvenAxis(absl::Span<const double> values, double high_min, Label label);

// "1 us", "500 ns": a power of ten times 1, 2 or 5, in its unit.
std::string TimeLabel(double nanoseconds);
std::string BytesLabel(double bytes);    // "64 KiB"
std::string CountLabel(double value);    // "2 T", as before a unit
std::string PlainLabel(double value);    // "0.25"
std::string SizeLabel(double value);     // "1048576", of a whole number
std::string PercentLabel(double share);  // "50%", of 0.5

}  // namespace warpcall::cli
