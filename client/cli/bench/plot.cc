#include "client/cli/bench/plot.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "client/cli/bench/axis.h"
#include "client/cli/bench/panel.h"
#include "client/cli/bench/series.h"
#include "client/cli/bench/svg.h"
#include "client/cli/common/table.h"

namespace warpcall::cli {
namespace {

// Two rows of two: the three panels, and the legend.
constexpr double kWidth = 1240;
constexpr double kHeight = 900;
constexpr Point kUpperLeft = {95, 105};
constexpr Point kStep = {610, 405};  // from a panel to its neighbour

const Stroke kRoof = {.color = "#777777", .width = 1.5, .dashes = ""};

double PlaceOf(const SeriesPoint& point) { return point.place; }
double TimeLowOf(const SeriesPoint& point) { return point.time_low_ns; }
double TimeHighOf(const SeriesPoint& point) { return point.time_high_ns; }
double TimeOf(const SeriesPoint& point) { return point.time_ns; }
double ShareOf(const SeriesPoint& point) { return point.ceiling_share; }
double RateOf(const SeriesPoint& point) { return point.flops_per_second; }
double IntensityOf(const SeriesPoint& point) { return point.flops_per_byte; }

std::string AxisTitle(const Picture& picture) {
  return picture.axis.empty() ? "bytes moved at least" : picture.axis;
}

Axis PlacesAxis(const Picture& picture, absl::Span<const double> places) {
  return BinaryAxis(places, picture.axis.empty() ? BytesLabel : SizeLabel);
}

void DrawTimes(const Picture& picture, Svg* svg) {
  Panel panel{.corner = kUpperLeft,
              .title = "Time",
              .x_title = AxisTitle(picture),
              .y_title = "median time of a launch, with its 95 % interval"};
  const std::vector<double> places = ValuesOf(picture, PlaceOf, TimeOf);
  if (places.empty()) return DrawEmpty(panel, "nothing was measured", svg);
  panel.x = PlacesAxis(picture, places);
  std::vector<double> times = ValuesOf(picture, TimeOf, PlaceOf);
  for (const Value value : {TimeLowOf, TimeHighOf})
    for (const double end : ValuesOf(picture, value, PlaceOf)) times.push_back(end);
  panel.y = DecimalAxis(times, TimeLabel);
  DrawFrame(panel, svg);
  DrawNoise(picture, panel, svg);
  DrawSeries(picture, panel, {PlaceOf, TimeOf}, svg);
}

void DrawShares(const Picture& picture, Svg* svg) {
  Panel panel{.corner = {kUpperLeft.x + kStep.x, kUpperLeft.y},
              .title = "Share of the copy ceiling",
              .x_title = AxisTitle(picture),
              .y_title = "of the measured copy ceiling"};
  const std::vector<double> places = ValuesOf(picture, PlaceOf, ShareOf);
  if (places.empty()) return DrawEmpty(panel, "no copy ceiling was measured", svg);
  panel.x = PlacesAxis(picture, places);
  panel.y = EvenAxis(ValuesOf(picture, ShareOf, PlaceOf), 1.04, PercentLabel);
  DrawFrame(panel, svg);
  svg->Line(panel.At(panel.x.low, 1), panel.At(panel.x.high, 1), kRoof);
  DrawSeries(picture, panel, {PlaceOf, ShareOf}, svg);
}

struct Ceiling {
  double bytes_per_second = 0;
  std::string label;
  int number = 0;  // labels of ceilings with higher numbers begin further right
};

// The slanted line of what memory allows, as far as it lies in the panel.
void DrawCeiling(const Ceiling& ceiling, const Panel& panel, Svg* svg) {
  const double x_low = std::max(panel.x.low, panel.y.low / ceiling.bytes_per_second);
  const double x_high = std::min(panel.x.high, panel.y.high / ceiling.bytes_per_second);
  if (!(x_low < x_high)) return;
  const Point from = panel.At(x_low, x_low * ceiling.bytes_per_second);
  const Point to = panel.At(x_high, x_high * ceiling.bytes_per_second);
  svg->Line(from, to, kRoof);
  // Above the line, from its lower end on, where no point is near; if the line is long enough.
  constexpr double kAbove = 6;
  constexpr double kTextLength = 150;
  const double angle = std::atan2(to.y - from.y, to.x - from.x);
  const double begin = 10 + ceiling.number * 1.4 * kTextLength;
  if (std::hypot(to.x - from.x, to.y - from.y) < begin + kTextLength) return;
  const Point at = {from.x + begin * std::cos(angle) + kAbove * std::sin(angle),
                    from.y + begin * std::sin(angle) - kAbove * std::cos(angle)};
  svg->Text(
      at, absl::StrCat(ceiling.label, " ", HumanRate(ceiling.bytes_per_second, "B/s")),
      {.size = 11, .turned = angle * 180 / std::numbers::pi, .color = "#555555", .outlined = true});
}

void DrawRoofline(const Picture& picture, Svg* svg) {
  // On the axis of intensity: for the ceiling's label, and so that a single one has neighbours.
  constexpr double kRoomBelow = 12;
  constexpr double kRoomAbove = 4;
  Panel panel{.corner = {kUpperLeft.x, kUpperLeft.y + kStep.y},
              .title = "Roofline",
              .x_title = "arithmetic intensity, FLOP per byte moved",
              .y_title = "FLOP/s"};
  const std::vector<double> intensities = ValuesOf(picture, IntensityOf, RateOf);
  if (intensities.empty()) return DrawEmpty(panel, "no arithmetic was counted", svg);
  const auto [least, most] = std::minmax_element(intensities.begin(), intensities.end());
  std::vector<double> rates = ValuesOf(picture, RateOf, IntensityOf);
  const double best = *std::max_element(rates.begin(), rates.end());
  // So that the roofs over the leftmost points are seen.
  for (const auto& [device, ceiling] : picture.ceilings)
    rates.push_back(std::min(*least * ceiling, best * 100));
  rates.push_back(best * 1.5);
  panel.x = DecimalAxis({*least / kRoomBelow, *most * kRoomAbove}, PlainLabel);
  panel.y = DecimalAxis(rates, CountLabel);
  DrawFrame(panel, svg);
  int number = 0;
  for (const auto& [device, ceiling] : picture.ceilings) {
    const std::string prefix = picture.ceilings.size() > 1 ? device + ": " : "";
    DrawCeiling({ceiling, prefix + "copy ceiling", number++}, panel, svg);
  }
  const Point best_end = panel.At(panel.x.high, best);
  svg->Line(panel.At(panel.x.low, best), best_end,
            {.color = kRoof.color, .width = kRoof.width, .dashes = "6 4"});
  DrawSeries(picture, panel, {IntensityOf, RateOf, /*lines=*/false}, svg);
  svg->Text({best_end.x - 6, best_end.y - 6},
            absl::StrCat("best seen: ", HumanRate(best, "FLOP/s")),
            {.size = 11, .anchor = "end", .color = "#555555", .outlined = true});
}

// Looks of the implementations, in one column or two, and dashes of the types.
void DrawLegend(const Picture& picture, Svg* svg) {
  constexpr double kLine = 21;
  constexpr double kColumn = 270;
  constexpr size_t kColumnLines = 12;
  constexpr size_t kShown = 2 * kColumnLines;
  const Point corner = {kUpperLeft.x + kStep.x - 60, kUpperLeft.y + kStep.y + 5};
  svg->Text(corner, "Implementation", {.size = 13, .bold = true});
  const size_t shown = std::min(picture.implementations.size(), kShown);
  for (size_t i = 0; i < shown; ++i) {
    const Look look = LookOf(i);
    const Point at = {corner.x + static_cast<double>(i / kColumnLines) * kColumn,
                      corner.y + static_cast<double>(i % kColumnLines + 1) * kLine};
    svg->Line({at.x, at.y - 4}, {at.x + 30, at.y - 4}, {look.color, 1.6, ""});
    svg->Mark(look.marker, {at.x + 15, at.y - 4}, look.color, picture.implementations[i]);
    svg->Text({at.x + 40, at.y}, CutMiddle(picture.implementations[i], 30), {});
  }
  const double lines = static_cast<double>(std::min(shown, kColumnLines));
  Point at = {corner.x, corner.y + (lines + 1.5) * kLine};
  if (picture.implementations.size() > shown)
    svg->Text({corner.x + kColumn, at.y},
              absl::StrCat("and ", picture.implementations.size() - shown, " more"), {});
  svg->Text(at, "Type", {.size = 13, .bold = true});
  std::set<DataType> types;
  for (const Series& series : picture.series) types.insert(series.data_type);
  for (const DataType type : types) {
    at.x += 75;
    svg->Line({at.x, at.y - 4}, {at.x + 34, at.y - 4}, {"#333333", 1.6, DashesOf(type)});
    svg->Text({at.x + 42, at.y}, DataTypeName(type), {});
    at.x += 40;
  }
}

// Machine, server and date, as far as the server said.
std::string Conditions(const BenchReport& report) {
  std::vector<std::string> facts;
  if (!report.server.host.empty()) facts.push_back(absl::StrCat("host ", report.server.host));
  std::set<std::string> told;
  int64_t started_unix_ns = 0;
  std::string version = report.server.version;
  for (const BenchPoint& point : report.points) {
    const client::RunStamp& stamp = point.report.stamp();
    if (started_unix_ns == 0) started_unix_ns = stamp.started_unix_ns();
    if (version.empty()) version = stamp.server_version();
    if (!stamp.device_description().empty() && told.insert(point.device()).second)
      facts.push_back(absl::StrCat(point.device(), ": ", stamp.device_description()));
  }
  if (!version.empty()) facts.push_back(absl::StrCat("warpcalld ", version));
  if (started_unix_ns > 0)
    facts.push_back(absl::FormatTime("%Y-%m-%d %H:%M UTC", absl::FromUnixNanos(started_unix_ns),
                                     absl::UTCTimeZone()));
  return absl::StrJoin(facts, "; ");
}

void DrawTitle(const BenchReport& report, Svg* svg) {
  constexpr size_t kTitleWidth = 88;  // characters
  constexpr size_t kConditionsWidth = 170;
  std::set<std::string> devices, types;
  for (const BenchPoint& point : report.points) {
    if (!point.device().empty()) devices.insert(point.device());
    types.insert(DataTypeName(point.data_type));
  }
  svg->Text({kUpperLeft.x, 38},
            CutMiddle(absl::StrCat(KernelTitle(report), devices.empty() ? "" : " on ",
                                   absl::StrJoin(devices, ", "), ", ", absl::StrJoin(types, ", ")),
                      kTitleWidth),
            {.size = 19, .bold = true});
  const size_t points = report.points.size();
  svg->Text({kUpperLeft.x, 60},
            absl::StrCat(points, points == 1 ? " point" : " points",
                         "; device time without transfers; the copy ceiling is what copying "
                         "reached in the same run, read plus written"),
            {.color = "#555555"});
  svg->Text({kUpperLeft.x, 78}, CutMiddle(Conditions(report), kConditionsWidth),
            {.color = "#555555"});
}

}  // namespace

std::string BenchPlot(const BenchReport& report) {
  const Variation variation = VariationOf(report);
  Picture picture{
      .axis = variation.axis, .series = SeriesOf(report, variation), .implementations = {}};
  for (const Series& series : picture.series) {
    std::vector<std::string>& names = picture.implementations;
    if (std::find(names.begin(), names.end(), series.implementation) == names.end())
      names.push_back(series.implementation);
  }
  for (const BenchPoint& point : report.points) {
    const double ceiling = point.report.ceiling_bytes_per_second();
    if (!std::isfinite(ceiling) || ceiling <= 0) continue;
    double& largest = picture.ceilings[point.device()];
    largest = std::max(largest, ceiling);
  }
  Svg svg(kWidth, kHeight);
  DrawTitle(report, &svg);
  DrawTimes(picture, &svg);
  DrawShares(picture, &svg);
  DrawRoofline(picture, &svg);
  DrawLegend(picture, &svg);
  return svg.ToString();
}

}  // namespace warpcall::cli
