// Charts as Scalable Vector Graphics (https://www.w3.org/TR/SVG11/, with SVG 2's paint-order, which
// older viewers ignore): shapes and text, axes with ticks, and panels between two axes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace warpcall::cli {

// A place, in pixels from the upper left corner; finite.
struct Point {
  double x = 0;
  double y = 0;
};

// How a line is drawn.
struct Stroke {
  std::string color = "#333333";
  double width = 1;
  std::string dashes = "";  // lengths of dashes and gaps; empty: a solid line
};

struct TextStyle {
  double size = 12;
  const char* anchor = "start";  // or "middle", "end": which part of the text stands at its point
  bool bold = false;
  double turned = 0;  // clockwise about its point, in degrees
  const char* color = "#222222";
  bool outlined = false;  // in white, to be read over lines
};

enum class Marker : uint8_t { kCircle, kSquare, kTriangle, kDiamond, kTriangleDown, kPlus, kCross };
inline constexpr int kMarkerCount = 7;

// A document. Text is escaped here; attributes (colours, anchors) are the program's own.
class Svg {
 public:
  // The ground is white.
  Svg(double width, double height);

  void Rectangle(Point corner, Point opposite, const Stroke& stroke);
  void Line(Point from, Point to, const Stroke& stroke);
  void Polyline(absl::Span<const Point> points, const Stroke& stroke);
  // Its inside alone, shimmering through.
  void Band(absl::Span<const Point> outline, const std::string& color);
  // `tip` is shown where a viewer points at the mark.
  void Mark(Marker marker, Point center, const std::string& color, absl::string_view tip);
  void Text(Point at, absl::string_view text, const TextStyle& style);

  // The whole document.
  std::string ToString() const;

 private:
  std::string text_;
};

struct Tick {
  double value = 0;
  std::string label;
};

// From `low` to `high`, evenly or by powers.
struct Axis {
  bool logarithmic = false;
  double low = 0;
  double high = 1;
  std::vector<Tick> ticks = {};  // within them, ascending, as many as stay readable

  // 0 at `low`, 1 at `high`; may lie outside. `value` is above 0 on a logarithmic axis.
  double Place(double value) const;
};

using Label = std::string (*)(double value);

// The axis of `values`, at least one and all above 0, with some room around them and never less
// than a decade. It has ticks at powers of 10, and at 2 and 5 times these where there is room.
Axis DecimalAxis(absl::Span<const double> values, Label label);
// Likewise with ticks at powers of 2, and never less than four octaves.
Axis BinaryAxis(absl::Span<const double> values, Label label);
// Even, from 0 to somewhat over the largest of `values`, at least to `high_min`.
Axis EvenAxis(absl::Span<const double> values, double high_min, Label label);

// "1 us", "500 ns": a power of ten times 1, 2 or 5, in its unit.
std::string TimeLabel(double nanoseconds);
std::string BytesLabel(double bytes);    // "64 KiB"
std::string CountLabel(double value);    // "2 T", as before a unit
std::string PlainLabel(double value);    // "0.25"
std::string SizeLabel(double value);     // "1048576", of a whole number
std::string PercentLabel(double share);  // "50%", of 0.5

inline constexpr Point kPanelSize = {490, 310};

// A place for a chart, with its titles.
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

  // Draws the frame, the grid at the ticks, and all texts.
  void DrawFrame(Svg* svg) const;
  // Draws the frame and, in its middle, why there is nothing to show.
  void DrawEmpty(const char* why, Svg* svg) const;
};

}  // namespace warpcall::cli
