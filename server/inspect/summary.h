// What samples come down to.
#pragma once

#include <vector>

namespace warpcall::inspect {

struct Summary {
  double mean = 0;
  double median = 0;  // the mean of the middle two of an even number
  double min = 0;
  double p10 = 0;  // the least sample that a tenth does not exceed
  double p90 = 0;  // the least sample that nine tenths do not exceed
  // Two samples that the true median lies between, 95 times in a hundred; the outermost ones of
  // fewer than 6 samples, which cannot be as sure.
  double median_low = 0;
  double median_high = 0;
  // Relative standard error of the median: the interval's half width is 1.96 of them. 0 of a median
  // of 0, and of one sample, which tells nothing of it.
  double noise = 0;
};

// Zeros of no samples.
Summary Summarize(std::vector<double> samples);

// By how much the largest median of `blocks` equal runs of samples, in the order in which they were
// taken, is above the least: 0.5 is half as much again. 0 where there are fewer samples than
// blocks, or the least is 0.
double Drift(const std::vector<double>& samples, int blocks);

}  // namespace warpcall::inspect
