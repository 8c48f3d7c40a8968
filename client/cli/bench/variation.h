// Finds what varies between the points of a benchmark, so that a plot can name its axis.
#pragma once

#include <string>
#include <vector>

#include "client/cli/bench/report.h"

namespace warpcall::cli {

struct Variation {
  // "N of 1024xN"; empty where no one size, or grid of two, tells the points apart: they are then
  // shown by the bytes that they move.
  std::string axis = "";
  // For each point of the report: its place on the axis, above 0, and, of a grid, which line it is
  // on: "M=64".
  std::vector<double> places = {};
  std::vector<std::string> lines = {};
};

// Finds the variation. Sizes that are equal in every point count as one. If two vary, the one with
// more values is the axis; the other has at most eight.
Variation VariationOf(const BenchReport& report);

}  // namespace warpcall::cli
