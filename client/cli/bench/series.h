// What a plot of a benchmark shows: one series for each implementation and type, and of a grid for
// each value of its second axis.
#pragma once

#include <string>
#include <vector>

#include "client/cli/bench/report.h"
#include "client/cli/bench/variation.h"

namespace warpcall::cli {

// A measurement; all are finite, `place`, `bytes` and `time_ns` above 0, the others 0 where not
// known.
struct SeriesPoint {
  std::string tip;
  double place = 0;  // on the axis of what varies, which may be `bytes`
  double bytes = 0;
  double time_ns = 0;
  // The 95 % confidence interval of time_ns.
  double time_low_ns = 0;
  double time_high_ns = 0;
  double ceiling_share = 0;
  double flops_per_second = 0;
  double flops_per_byte = 0;
};

struct Series {
  std::string implementation;  // with its device where there are several
  DataType data_type = DataType::kFloat32;
  std::string line = "";                 // of a grid: "M=64"
  std::vector<SeriesPoint> points = {};  // by place, ascending
};

// Without what did not run, or moves nothing. In order of first appearance among the ranked rows.
// `variation` is the report's.
std::vector<Series> SeriesOf(const BenchReport& report, const Variation& variation);

}  // namespace warpcall::cli
