// The roof of a roofline: what a device allows at each arithmetic intensity.
#pragma once

#include <string>

#include "client/cli/common/chart.h"

namespace warpcall::cli {

// How a chart draws what a device allows.
inline const Stroke kRoof = {.color = "#777777", .width = 1.5, .dashes = ""};

struct Ceiling {
  double bytes_per_second = 0;
  std::string label;
  int number = 0;  // labels of ceilings with higher numbers begin further right
};

// Draws the slanted line of what memory allows, as far as it lies in the panel. The panel's axes
// are FLOP per byte and FLOP/s.
void DrawCeiling(const Ceiling& ceiling, const Panel& panel, Svg* svg);

}  // namespace warpcall::cli
