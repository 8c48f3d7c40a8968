// Statistics of samples.
#pragma once

#include <vector>

namespace warpcall::inspect {

struct Summary {
  double mean = 0;
  double median = 0;  // the mean of the middle two of an even number
  double min = 0;
  double p10 = 0;  // the least sample that a tenth does not exceed
  double p90 = 0;  // the least sample that nine tenths do not exceed
  // Two samples that the true median lies between, 95 times in a hundred. With fewer than 6
  // samples: the outermost ones, which are less certain.
  double median_low = 0;
  double median_high = 0;
  // Relative standard error of the median: the interval's half width is 1.96 of them. 0 for a
  // median of 0, and for one sample, which shows no noise.
  double noise = 0;
};

// Zeros without samples.
Summary Summarize(std::vector<double> samples);

// How far the largest median of `blocks` equal runs of consecutive samples is above the
// least: 0.5 is half as much again. 0 if there are fewer samples than blocks, or the least is
// 0.
double Drift(const std::vector<double>& samples, int blocks);

}  // namespace warpcall::inspect
