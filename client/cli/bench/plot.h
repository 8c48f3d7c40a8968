// The measurements of `warpcall bench` as a picture.
#pragma once

#include <string>

#include "client/cli/bench/report.h"

namespace warpcall::cli {

// An SVG document: time, with its confidence interval, and share of the copy ceiling over what
// varies (VariationOf), or else over the bytes that a kernel must at least move; roofline; a
// legend; machine and date. What did not run, or moves nothing, is left out; a panel for which
// nothing is left says so.
std::string BenchPlot(const BenchReport& report);

}  // namespace warpcall::cli
