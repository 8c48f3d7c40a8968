#include "client/cli/bench/svg.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/cli/common/screen.h"

namespace warpcall::cli {
namespace {

constexpr double kMarkRadius = 4;

// A tenth of a pixel is finer than screens.
std::string Pixels(double value) {
  std::string text = absl::StrFormat("%.1f", value);
  return text == "-0.0" ? "0.0" : text;
}

// For text and attribute values alike. XML 1.0 has no way to say most control characters.
std::string Escaped(absl::string_view text) {
  std::string escaped;
  for (const char c : Printable(text)) {
    if (c == '&') {
      escaped += "&amp;";
    } else if (c == '<') {
      escaped += "&lt;";
    } else if (c == '>') {
      escaped += "&gt;";
    } else if (c == '"') {
      escaped += "&quot;";
    } else {
      escaped.push_back(c);
    }
  }
  return escaped;
}

std::string Attributes(const Stroke& stroke) {
  return absl::StrCat(
      " stroke=\"", stroke.color, "\" stroke-width=\"", Pixels(stroke.width), "\"",
      stroke.dashes.empty() ? "" : absl::StrCat(" stroke-dasharray=\"", stroke.dashes, "\""));
}

std::string Places(absl::Span<const Point> points) {
  return absl::StrJoin(points, " ", [](std::string* out, const Point& point) {
    absl::StrAppend(out, Pixels(point.x), ",", Pixels(point.y));
  });
}

// Outlines around 0, 0, as path data.
const char* Outline(Marker marker) {
  switch (marker) {
    case Marker::kCircle:
      break;  // has an element of its own
    case Marker::kSquare:
      return "M-3.6-3.6H3.6V3.6H-3.6Z";
    case Marker::kTriangle:
      return "M0-4.8L4.6 3.6H-4.6Z";
    case Marker::kDiamond:
      return "M0-5.2L4.6 0L0 5.2L-4.6 0Z";
    case Marker::kTriangleDown:
      return "M0 4.8L4.6-3.6H-4.6Z";
    case Marker::kPlus:
      return "M-1.3-4.8H1.3V-1.3H4.8V1.3H1.3V4.8H-1.3V1.3H-4.8V-1.3H-1.3Z";
    case Marker::kCross:
      return "M-4.3-2.5L-2.5-4.3L0-1.8L2.5-4.3L4.3-2.5L1.8 0L4.3 2.5L2.5 4.3L0 1.8L-2.5 4.3"
             "L-4.3 2.5L-1.8 0Z";
  }
  return "";
}

}  // namespace

Svg::Svg(double width, double height)
    : text_(absl::StrFormat("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%g\" height=\"%g\" "
                            "viewBox=\"0 0 %g %g\" "
                            "font-family=\"DejaVu Sans, Verdana, sans-serif\">\n"
                            "<rect width=\"100%%\" height=\"100%%\" fill=\"#ffffff\"/>\n",
                            width, height, width, height)) {}

void Svg::Rectangle(Point corner, Point opposite, const Stroke& stroke) {
  absl::StrAppend(&text_, "<rect x=\"", Pixels(corner.x), "\" y=\"", Pixels(corner.y),
                  "\" width=\"", Pixels(opposite.x - corner.x), "\" height=\"",
                  Pixels(opposite.y - corner.y), "\" fill=\"none\"", Attributes(stroke), "/>\n");
}

void Svg::Line(Point from, Point to, const Stroke& stroke) {
  absl::StrAppend(&text_, "<line x1=\"", Pixels(from.x), "\" y1=\"", Pixels(from.y), "\" x2=\"",
                  Pixels(to.x), "\" y2=\"", Pixels(to.y), "\"", Attributes(stroke), "/>\n");
}

void Svg::Polyline(absl::Span<const Point> points, const Stroke& stroke) {
  absl::StrAppend(&text_, "<polyline fill=\"none\"", Attributes(stroke), " points=\"",
                  Places(points), "\"/>\n");
}

void Svg::Band(absl::Span<const Point> outline, const std::string& color) {
  absl::StrAppend(&text_, "<polygon fill=\"", color, "\" fill-opacity=\"0.18\" points=\"",
                  Places(outline), "\"/>\n");
}

void Svg::Mark(Marker marker, Point center, const std::string& color, absl::string_view tip) {
  const std::string place = absl::StrCat(
      " transform=\"translate(", Pixels(center.x), ",", Pixels(center.y), ")\" fill=\"", color,
      "\" stroke=\"#ffffff\" stroke-width=\"0.7\"><title>", Escaped(tip), "</title>");
  if (marker == Marker::kCircle) {
    absl::StrAppend(&text_, "<circle r=\"", Pixels(kMarkRadius), "\"", place, "</circle>\n");
  } else {
    absl::StrAppend(&text_, "<path d=\"", Outline(marker), "\"", place, "</path>\n");
  }
}

void Svg::Text(Point at, absl::string_view text, const TextStyle& style) {
  const std::string turn = style.turned == 0
                               ? ""
                               : absl::StrCat(" transform=\"rotate(", Pixels(style.turned), " ",
                                              Pixels(at.x), " ", Pixels(at.y), ")\"");
  absl::StrAppend(
      &text_, "<text x=\"", Pixels(at.x), "\" y=\"", Pixels(at.y), "\" font-size=\"",
      Pixels(style.size), "\" fill=\"", style.color, "\" text-anchor=\"", style.anchor, "\"",
      style.bold ? " font-weight=\"bold\"" : "",
      style.outlined ? " stroke=\"#ffffff\" stroke-width=\"3\" paint-order=\"stroke\"" : "", turn,
      ">", Escaped(text), "</text>\n");
}

std::string Svg::ToString() const { return absl::StrCat(text_, "</svg>\n"); }

}  // namespace warpcall::cli
