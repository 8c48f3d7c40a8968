// A picture as Scalable Vector Graphics: https://www.w3.org/TR/SVG11/, with SVG 2's paint-order,
// which older viewers ignore.
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace warpcall::cli {

// A place, in pixels from the upper left corner; finite.
struct Point {
  double x = 0;
  double y = 0;
};

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

// Text is escaped here; attributes (colours, anchors) are the program's own.
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

}  // namespace warpcall::cli
