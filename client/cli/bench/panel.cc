#include "client/cli/bench/panel.h"

#include <algorithm>
#include <iterator>

namespace warpcall::cli {
namespace {

const Stroke kFrame = {.color = "#555555", .width = 1, .dashes = ""};
const Stroke kGrid = {.color = "#e4e4e4", .width = 1, .dashes = ""};

// Okabe and Ito's colours for all kinds of colour vision (https://jfly.uni-koeln.de/color/), less
// yellow, which is too pale on white. As there are as many markers, implementation 8 takes the
// first colour with the second marker, and so on.
constexpr const char* kColors[] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                   "#e69f00", "#56b4e9", "#000000"};
constexpr size_t kColorCount = std::size(kColors);

}  // namespace

Look LookOf(size_t implementation) {
  const size_t turn = implementation / kColorCount;
  return {kColors[implementation % kColorCount],
          static_cast<Marker>((implementation + turn) % kMarkerCount)};
}

const char* DashesOf(DataType type) {
  return type == DataType::kFloat32 ? "" : type == DataType::kFloat16 ? "7 4" : "2 3";
}

Look Picture::LookOf(const Series& one) const {
  const auto found = std::find(implementations.begin(), implementations.end(), one.implementation);
  return cli::LookOf(static_cast<size_t>(found - implementations.begin()));
}

std::vector<double> ValuesOf(const Picture& picture, Value value, Value other) {
  std::vector<double> values;
  for (const Series& series : picture.series)
    for (const SeriesPoint& point : series.points)
      if (value(point) > 0 && other(point) > 0) values.push_back(value(point));
  return values;
}

void DrawFrame(const Panel& panel, Svg* svg) {
  const Point corner = panel.corner;
  const Point opposite = panel.opposite();
  for (const Tick& tick : panel.x.ticks) {
    const double x = panel.At(tick.value, panel.y.high).x;
    svg->Line({x, corner.y}, {x, opposite.y}, kGrid);
    svg->Text({x, opposite.y + 17}, tick.label, {.size = 11, .anchor = "middle"});
  }
  for (const Tick& tick : panel.y.ticks) {
    const double y = panel.At(panel.x.high, tick.value).y;
    svg->Line({corner.x, y}, {opposite.x, y}, kGrid);
    svg->Text({corner.x - 7, y + 4}, tick.label, {.size = 11, .anchor = "end"});
  }
  svg->Rectangle(corner, opposite, kFrame);
  const double middle_x = (corner.x + opposite.x) / 2;
  const double middle_y = (corner.y + opposite.y) / 2;
  svg->Text({middle_x, corner.y - 10}, panel.title, {.size = 13, .anchor = "middle", .bold = true});
  svg->Text({middle_x, opposite.y + 37}, panel.x_title, {.size = 12, .anchor = "middle"});
  svg->Text({corner.x - 65, middle_y}, panel.y_title,
            {.size = 12, .anchor = "middle", .turned = -90});
}

void DrawEmpty(const Panel& panel, const char* why, Svg* svg) {
  const Point opposite = panel.opposite();
  svg->Rectangle(panel.corner, opposite, kFrame);
  const double middle_x = (panel.corner.x + opposite.x) / 2;
  svg->Text({middle_x, panel.corner.y - 10}, panel.title,
            {.size = 13, .anchor = "middle", .bold = true});
  svg->Text({middle_x, (panel.corner.y + opposite.y) / 2}, why, {.size = 12, .anchor = "middle"});
}

void DrawSeries(const Picture& picture, const Panel& panel, const Coordinates& of, Svg* svg) {
  for (const Series& series : picture.series) {
    const Look look = picture.LookOf(series);
    std::vector<Point> points;
    std::vector<const std::string*> tips;
    for (const SeriesPoint& point : series.points) {
      if (of.x(point) <= 0 || of.y(point) <= 0) continue;
      points.push_back(panel.At(of.x(point), of.y(point)));
      tips.push_back(&point.tip);
    }
    if (of.lines && points.size() > 1)
      svg->Polyline(points, {look.color, 1.6, DashesOf(series.data_type)});
    if (of.lines && !points.empty() && !series.line.empty())
      svg->Text({points.back().x + 7, points.back().y + 3}, series.line,
                {.size = 9, .color = "#555555", .outlined = true});
    for (size_t i = 0; i < points.size(); ++i)
      svg->Mark(look.marker, points[i], look.color, *tips[i]);
  }
}

void DrawNoise(const Picture& picture, const Panel& panel, Svg* svg) {
  for (const Series& series : picture.series) {
    const std::string color = picture.LookOf(series).color;
    std::vector<Point> low, high;
    for (const SeriesPoint& point : series.points) {
      if (point.time_low_ns <= 0 || point.time_high_ns < point.time_low_ns) continue;
      low.push_back(panel.At(point.place, point.time_low_ns));
      high.push_back(panel.At(point.place, point.time_high_ns));
      svg->Line(low.back(), high.back(), {.color = color, .width = 1, .dashes = ""});
    }
    if (low.size() < 2) continue;
    high.insert(high.end(), low.rbegin(), low.rend());
    svg->Band(high, color);
  }
}

}  // namespace warpcall::cli
