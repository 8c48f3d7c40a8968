// The measurements of `warpcall bench` as a picture.
#pragma once

#include <string>

#include "client/cli/bench/report.h"

namespace warpcall::cli {

// Draws an SVG document: time, with its confidence interval, and share of the copy or read ceiling
// over the varying size (VariationOf), or else over the bytes that a kernel must at least move;
// roofline; a legend; machine and date. Leaves out rows that did not run or move nothing; an empty
// panel says that it is empty.
std::string BenchPlot(const BenchReport& report);

}  // namespace warpcall::cli
