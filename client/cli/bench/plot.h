// The measurements of `warpcall bench` as a picture.
#pragma once

#include <string>

#include "client/cli/bench/report.h"

namespace warpcall::cli {

// An SVG document: time over size, share of the copy ceiling over size, roofline, and a legend.
// Size is the bytes that a kernel must at least move. What did not run, or moves nothing, is left
// out; a panel for which nothing is left says so.
std::string BenchPlot(const BenchReport& report);

}  // namespace warpcall::cli
