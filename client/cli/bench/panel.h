// What the panels of a benchmark's picture share. Internal to the picture.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "client/cli/bench/axis.h"
#include "client/cli/bench/series.h"
#include "client/cli/bench/svg.h"

namespace warpcall::cli {

// How an implementation is drawn, by its number; the first 49 differ.
struct Look {
  std::string color;
  Marker marker;
};
Look LookOf(size_t implementation);
const char* DashesOf(DataType type);

// What all panels draw.
struct Picture {
  std::string axis;  // of what varies, under the panels over it; empty: bytes moved
  std::vector<Series> series;
  std::vector<std::string> implementations;  // their places give their looks
  // The largest of each device, in bytes per second; of what was measured.
  std::map<std::string, double> ceilings = {};

  Look LookOf(const Series& one) const;
};

// A number of a point; 0 where it is not known.
using Value = double (*)(const SeriesPoint&);
// The values of the points for which both are above 0.
std::vector<double> ValuesOf(const Picture& picture, Value value, Value other);

inline constexpr Point kPanelSize = {490, 310};

struct Panel {
  Point corner;
  std::string title;
  std::string x_title;
  std::string y_title;
  Axis x = {};
  Axis y = {};

  Point At(double x_value, double y_value) const {
    return {corner.x + kPanelSize.x * x.Place(x_value),
            corner.y + kPanelSize.y * (1 - y.Place(y_value))};
  }
  Point opposite() const { return {corner.x + kPanelSize.x, corner.y + kPanelSize.y}; }
};

void DrawFrame(const Panel& panel, Svg* svg);
// Instead of a panel for which there is nothing.
void DrawEmpty(const Panel& panel, const char* why, Svg* svg);

// What a panel draws of each point.
struct Coordinates {
  Value x;
  Value y;
  bool lines = true;  // from point to point
};
void DrawSeries(const Picture& picture, const Panel& panel, const Coordinates& of, Svg* svg);
// The confidence intervals of the times, behind the series of a panel of times.
void DrawNoise(const Picture& picture, const Panel& panel, Svg* svg);

}  // namespace warpcall::cli
