// What a plot of a benchmark shows: one series for each implementation and type.
#pragma once

#include <string>
#include <vector>

#include "client/cli/bench/report.h"

namespace warpcall::cli {

// A measurement; all are finite, `bytes` and `time_ns` above 0, the others 0 where not known.
struct SeriesPoint {
  std::string tip;
  double bytes = 0;
  double time_ns = 0;
  double ceiling_share = 0;
  double flops_per_second = 0;
  double flops_per_byte = 0;
};

struct Series {
  std::string implementation;  // with its device where there are several
  DataType data_type = DataType::kFloat32;
  std::vector<SeriesPoint> points;  // by bytes, ascending
};

// Without what did not run, or moves nothing. In order of first appearance among the ranked rows.
std::vector<Series> SeriesOf(const BenchReport& report);

}  // namespace warpcall::cli
