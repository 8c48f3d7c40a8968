// What samples come down to.
#pragma once

#include <vector>

namespace warpcall::inspect {

struct Summary {
  double mean = 0;
  double median = 0;  // the mean of the middle two of an even number
  double min = 0;
  double p90 = 0;  // the least sample that nine tenths do not exceed
};

// Zeros of no samples.
Summary Summarize(std::vector<double> samples);

}  // namespace warpcall::inspect
