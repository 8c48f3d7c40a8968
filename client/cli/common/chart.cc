#include "client/cli/common/chart.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "proto/common/human_figures.h"
#include "proto/common/printable.h"

namespace warpcall::cli {
namespace {

const Stroke kFrame = {.color = "#555555", .width = 1, .dashes = ""};
const Stroke kGrid = {.color = "#e4e4e4", .width = 1, .dashes = ""};

constexpr double kMarkRadius = 4;

// A tenth of a pixel is finer than screens.
std::string Pixels(double value) {
  std::string text = absl::StrFormat("%.1f", value);
  return text == "-0.0" ? "0.0" : text;
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

// More do not fit side by side.
constexpr int kTicksMax = 7;
// Share of the axis that stays free on either side of the values.
constexpr double kRoom = 0.06;

// Exponents of `base` between which the values lie, with room, at least `width_min` apart.
struct Exponents {
  double low;
  double high;
};

Exponents Span(absl::Span<const double> values, double base, double width_min) {
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  double low = std::log(*least) / std::log(base);
  double high = std::log(*most) / std::log(base);
  const double missing = std::max(0.0, width_min - (high - low));
  low -= missing / 2;
  high += missing / 2;
  const double room = kRoom * (high - low);
  return {low - room, high + room};
}

Axis LogAxis(const Exponents& exponents, double base) {
  return {.logarithmic = true,
          .low = std::pow(base, exponents.low),
          .high = std::pow(base, exponents.high)};
}

// Whole exponents within, every so many that there are few enough.
std::vector<int> WholeExponents(const Exponents& exponents) {
  const int first = static_cast<int>(std::ceil(exponents.low));
  const int last = static_cast<int>(std::floor(exponents.high));
  const int step = std::max(1, (last - first + kTicksMax) / kTicksMax);
  std::vector<int> whole;
  for (int exponent = first; exponent <= last; ++exponent)
    if (exponent % step == 0) whole.push_back(exponent);
  return whole;
}

// A figure for people as short as a tick's label must be: "1.00 us" is "1 us".
std::string Shortened(const std::string& figure) {
  std::string number = figure.substr(0, figure.find(' '));
  const std::string unit = figure.substr(number.size());
  if (absl::StrContains(number, '.')) {
    number.erase(number.find_last_not_of('0') + 1);
    if (number.back() == '.') number.pop_back();
  }
  return absl::StrCat(number, unit == " " ? "" : unit);
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
      "\" stroke=\"#ffffff\" stroke-width=\"0.7\"><title>", EscapeMarkup(tip), "</title>");
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
      ">", EscapeMarkup(text), "</text>\n");
}

std::string Svg::ToString() const { return absl::StrCat(text_, "</svg>\n"); }

double Axis::Place(double value) const {
  if (!logarithmic) return (value - low) / (high - low);
  return std::log(value / low) / std::log(high / low);
}

Axis DecimalAxis(absl::Span<const double> values, Label label) {
  const Exponents exponents = Span(values, 10, 1);
  Axis axis = LogAxis(exponents, 10);
  const std::vector<int> whole = WholeExponents(exponents);
  if (exponents.high - exponents.low > 2.5) {
    for (const int exponent : whole) {
      const double value = std::pow(10, exponent);
      axis.ticks.push_back({value, label(value)});
    }
    return axis;
  }
  for (int exponent = static_cast<int>(std::floor(exponents.low)); exponent <= exponents.high;
       ++exponent) {
    for (const int digit : {1, 2, 5}) {
      const double value = digit * std::pow(10, exponent);
      if (value >= axis.low && value <= axis.high) axis.ticks.push_back({value, label(value)});
    }
  }
  return axis;
}

Axis BinaryAxis(absl::Span<const double> values, Label label) {
  const Exponents exponents = Span(values, 2, 4);
  Axis axis = LogAxis(exponents, 2);
  for (const int exponent : WholeExponents(exponents)) {
    const double value = std::exp2(exponent);
    axis.ticks.push_back({value, label(value)});
  }
  return axis;
}

Axis EvenAxis(absl::Span<const double> values, double high_min, Label label) {
  double most = high_min;
  for (const double value : values) most = std::max(most, value * (1 + kRoom));
  // The least step of 1, 2 or 5 that leaves few enough ticks.
  double step = std::pow(10, std::floor(std::log10(most)) - 1);
  for (int i = 0; most / step > kTicksMax; ++i) step *= i % 3 == 1 ? 2.5 : 2;
  Axis axis{.logarithmic = false, .low = 0, .high = most};
  for (int i = 0; i * step <= most * (1 + 1e-9); ++i)
    axis.ticks.push_back({i * step, label(i * step)});
  return axis;
}

std::string TimeLabel(double nanoseconds) { return Shortened(HumanTime(nanoseconds)); }

std::string BytesLabel(double bytes) { return Shortened(HumanBytes(bytes)); }

std::string CountLabel(double value) { return Shortened(HumanRate(value, "")); }

std::string PlainLabel(double value) { return absl::StrFormat("%g", value); }

std::string SizeLabel(double value) { return absl::StrFormat("%.0f", value); }

std::string PercentLabel(double share) { return absl::StrFormat("%.4g%%", share * 100); }

void Panel::DrawFrame(Svg* svg) const {
  const Point end = opposite();
  for (const Tick& tick : x.ticks) {
    const double at = At(tick.value, y.high).x;
    svg->Line({at, corner.y}, {at, end.y}, kGrid);
    svg->Text({at, end.y + 17}, tick.label, {.size = 11, .anchor = "middle"});
  }
  for (const Tick& tick : y.ticks) {
    const double at = At(x.high, tick.value).y;
    svg->Line({corner.x, at}, {end.x, at}, kGrid);
    svg->Text({corner.x - 7, at + 4}, tick.label, {.size = 11, .anchor = "end"});
  }
  svg->Rectangle(corner, end, kFrame);
  const double middle_x = (corner.x + end.x) / 2;
  const double middle_y = (corner.y + end.y) / 2;
  svg->Text({middle_x, corner.y - 10}, title, {.size = 13, .anchor = "middle", .bold = true});
  svg->Text({middle_x, end.y + 37}, x_title, {.size = 12, .anchor = "middle"});
  svg->Text({corner.x - 65, middle_y}, y_title, {.size = 12, .anchor = "middle", .turned = -90});
}

void Panel::DrawEmpty(const char* why, Svg* svg) const {
  const Point end = opposite();
  svg->Rectangle(corner, end, kFrame);
  const double middle_x = (corner.x + end.x) / 2;
  svg->Text({middle_x, corner.y - 10}, title, {.size = 13, .anchor = "middle", .bold = true});
  svg->Text({middle_x, (corner.y + end.y) / 2}, why, {.size = 12, .anchor = "middle"});
}

}  // namespace warpcall::cli
