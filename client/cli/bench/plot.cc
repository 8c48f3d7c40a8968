#include "client/cli/bench/plot.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "client/cli/bench/variation.h"
#include "client/cli/common/catalog.h"
#include "client/cli/common/chart.h"
#include "client/cli/common/roofline.h"
#include "client/cli/common/table.h"
#include "proto/common/pinned_name.h"

namespace warpcall::cli {
namespace {

using client::BenchmarkResult;

// Two rows of two: the three panels, and the legend.
constexpr double kWidth = 1240;
constexpr double kHeight = 900;
constexpr Point kUpperLeft = {95, 105};
constexpr Point kStep = {610, 405};  // from a panel to its neighbour

// Okabe and Ito's colours for all kinds of colour vision (https://jfly.uni-koeln.de/color/), less
// yellow, which is too pale on white. As there are as many markers, implementation 8 takes the
// first colour with the second marker, and so on.
constexpr const char* kColors[] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                   "#e69f00", "#56b4e9", "#000000"};
constexpr size_t kColorCount = std::size(kColors);

// Style of an implementation, chosen by its number; the first 49 differ.
struct Look {
  std::string color;
  Marker marker;
};

Look LookOf(size_t implementation) {
  const size_t turn = implementation / kColorCount;
  return {kColors[implementation % kColorCount],
          static_cast<Marker>((implementation + turn) % kMarkerCount)};
}

// A measurement. All numbers are finite; `place` and `time_ns` are above 0, the others are 0 where
// they are not known.
struct SeriesPoint {
  std::string tip;
  double place = 0;  // on the axis of what varies, or else the bytes moved
  double time_ns = 0;
  // The 95 % confidence interval of time_ns.
  double time_low_ns = 0;
  double time_high_ns = 0;
  double ceiling_share = 0;
  double flops_per_second = 0;
  double flops_per_byte = 0;
};

struct Series {
  std::string implementation;  // followed by its device if there are several
  DataType data_type = DataType::kFloat32;
  std::string line = "";                 // line of a grid: "M=64"
  std::vector<SeriesPoint> points = {};  // by place, ascending
  Look look = {};
};

// 0 for what can't be drawn.
double Drawable(double value) { return std::isfinite(value) && value > 0 ? value : 0; }

Series* FindOrAdd(const Series& key, std::vector<Series>* all) {
  for (Series& series : *all)
    if (series.implementation == key.implementation && series.data_type == key.data_type &&
        series.line == key.line)
      return &series;
  all->push_back(key);
  return &all->back();
}

SeriesPoint ToPoint(const BenchPoint& measured, const BenchmarkResult& result) {
  SeriesPoint point;
  point.place = static_cast<double>(result.launch().bytes_moved());
  point.time_ns = Drawable(result.median_ns());
  point.time_low_ns = Drawable(result.median_low_ns());
  point.time_high_ns = Drawable(result.median_high_ns());
  point.ceiling_share = Drawable(result.fraction_of_ceiling());
  point.flops_per_second = Drawable(result.flops_per_second());
  point.flops_per_byte = Drawable(static_cast<double>(result.launch().flops()) / point.place);
  point.tip = absl::StrCat(PinnedName(result), " ", ProblemTitle(measured), ": ",
                           HumanTime(point.time_ns), result.unstable() ? " (unstable), " : ", ",
                           HumanRate(Drawable(result.bytes_per_second()), "B/s"), ", ",
                           HumanRate(point.flops_per_second, "FLOP/s"));
  if (point.ceiling_share > 0 && IsOfReads(measured.report))
    absl::StrAppend(&point.tip, ", ", PercentLabel(point.ceiling_share), " of reads");
  return point;
}

// Without what did not run, or moves nothing. In order of first appearance among the ranked rows.
// One line for an implementation whose variants change along it, one for each variant where several
// were asked for.
std::string SeriesName(const client::BenchmarkReport& report, const BenchmarkResult& result) {
  const auto same = std::count_if(report.results().begin(), report.results().end(),
                                  [&](const BenchmarkResult& other) {
                                    return other.implementation() == result.implementation();
                                  });
  return same == 1 ? result.implementation() : PinnedName(result);
}

std::vector<Series> SeriesOf(const BenchReport& report, const Variation& variation) {
  const bool with_device = report.several_devices();
  std::vector<Series> all;
  for (size_t i = 0; i < report.points.size(); ++i) {
    const BenchPoint& measured = report.points[i];
    for (const BenchmarkResult& result : Ranked(measured.report)) {
      const bool drawable = result.error().empty() && Drawable(result.median_ns()) > 0;
      if (!drawable || result.launch().bytes_moved() <= 0) continue;
      Series key{.implementation = SeriesName(measured.report, result),
                 .data_type = measured.data_type};
      if (with_device) absl::StrAppend(&key.implementation, " (", measured.device(), ")");
      SeriesPoint point = ToPoint(measured, result);
      if (!variation.axis.empty()) {
        point.place = variation.places[i];
        key.line = variation.lines[i];
      }
      FindOrAdd(key, &all)->points.push_back(std::move(point));
    }
  }
  for (Series& series : all)
    std::stable_sort(series.points.begin(), series.points.end(),
                     [](const auto& a, const auto& b) { return a.place < b.place; });
  return all;
}

const char* DashesOf(DataType type) {
  return type == DataType::kFloat32 ? "" : type == DataType::kFloat16 ? "7 4" : "2 3";
}

// Data shared by all panels.
struct Picture {
  std::string axis;  // label under the lower panels; empty: bytes moved
  std::vector<Series> series;
  std::vector<std::string> implementations;  // their places give their looks
  bool several_devices = false;
  // Largest of each device's ceilings that shares are of, in bytes per second. By device; true: of
  // reads.
  std::map<std::pair<std::string, bool>, double> ceilings = {};

  bool HasCeilingOf(bool reads) const {
    return std::any_of(ceilings.begin(), ceilings.end(),
                       [=](const auto& ceiling) { return ceiling.first.second == reads; });
  }
};

// A number of a point; 0 where it is not known.
using Value = double SeriesPoint::*;

// The values of the points for which both are above 0.
std::vector<double> ValuesOf(const Picture& picture, Value value, Value other) {
  std::vector<double> values;
  for (const Series& series : picture.series)
    for (const SeriesPoint& point : series.points)
      if (point.*value > 0 && point.*other > 0) values.push_back(point.*value);
  return values;
}

// Values that a panel draws for each point.
struct Coordinates {
  Value x;
  Value y;
  bool lines = true;  // from point to point
};

void DrawSeries(const Picture& picture, const Panel& panel, const Coordinates& of, Svg* svg) {
  for (const Series& series : picture.series) {
    std::vector<Point> points;
    std::vector<const std::string*> tips;
    for (const SeriesPoint& point : series.points) {
      if (point.*of.x <= 0 || point.*of.y <= 0) continue;
      points.push_back(panel.At(point.*of.x, point.*of.y));
      tips.push_back(&point.tip);
    }
    if (of.lines && points.size() > 1)
      svg->Polyline(points, {series.look.color, 1.6, DashesOf(series.data_type)});
    if (of.lines && !points.empty() && !series.line.empty())
      svg->Text({points.back().x + 7, points.back().y + 3}, series.line,
                {.size = 9, .color = "#555555", .outlined = true});
    for (size_t i = 0; i < points.size(); ++i)
      svg->Mark(series.look.marker, points[i], series.look.color, *tips[i]);
  }
}

// Draws the confidence intervals of the times, behind the series.
void DrawNoise(const Picture& picture, const Panel& panel, Svg* svg) {
  for (const Series& series : picture.series) {
    std::vector<Point> low, high;
    for (const SeriesPoint& point : series.points) {
      if (point.time_low_ns <= 0 || point.time_high_ns < point.time_low_ns) continue;
      low.push_back(panel.At(point.place, point.time_low_ns));
      high.push_back(panel.At(point.place, point.time_high_ns));
      svg->Line(low.back(), high.back(), {.color = series.look.color, .width = 1, .dashes = ""});
    }
    if (low.size() < 2) continue;
    high.insert(high.end(), low.rbegin(), low.rend());
    svg->Band(high, series.look.color);
  }
}

constexpr Value kPlace = &SeriesPoint::place;
constexpr Value kTime = &SeriesPoint::time_ns;
constexpr Value kShare = &SeriesPoint::ceiling_share;
constexpr Value kRate = &SeriesPoint::flops_per_second;
constexpr Value kIntensity = &SeriesPoint::flops_per_byte;

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
  const std::vector<double> places = ValuesOf(picture, kPlace, kTime);
  if (places.empty()) return panel.DrawEmpty("nothing was measured", svg);
  panel.x = PlacesAxis(picture, places);
  std::vector<double> times = ValuesOf(picture, kTime, kPlace);
  for (const Value value : {&SeriesPoint::time_low_ns, &SeriesPoint::time_high_ns})
    for (const double end : ValuesOf(picture, value, kPlace)) times.push_back(end);
  panel.y = DecimalAxis(times, TimeLabel);
  panel.DrawFrame(svg);
  DrawNoise(picture, panel, svg);
  DrawSeries(picture, panel, {kPlace, kTime}, svg);
}

void DrawShares(const Picture& picture, Svg* svg) {
  Panel panel{.corner = {kUpperLeft.x + kStep.x, kUpperLeft.y},
              .title = "Share of the copy ceiling",
              .x_title = AxisTitle(picture),
              .y_title = "of the measured copy ceiling"};
  if (picture.HasCeilingOf(/*reads=*/true)) {
    const bool has_copies = picture.HasCeilingOf(/*reads=*/false);
    panel.title = has_copies ? "Share of the copy or read ceiling" : "Share of the read ceiling";
    panel.y_title = has_copies ? "of copies, or of reads where a point's tip says so"
                               : "of the measured read ceiling";
  }
  const std::vector<double> places = ValuesOf(picture, kPlace, kShare);
  if (places.empty()) return panel.DrawEmpty("no copy ceiling was measured", svg);
  panel.x = PlacesAxis(picture, places);
  panel.y = EvenAxis(ValuesOf(picture, kShare, kPlace), 1.04, PercentLabel);
  panel.DrawFrame(svg);
  svg->Line(panel.At(panel.x.low, 1), panel.At(panel.x.high, 1), kRoof);
  DrawSeries(picture, panel, {kPlace, kShare}, svg);
}

void DrawRoofline(const Picture& picture, Svg* svg) {
  // On the axis of intensity: for the ceiling's label, and so that a single one has neighbours.
  constexpr double kRoomBelow = 12;
  constexpr double kRoomAbove = 4;
  Panel panel{.corner = {kUpperLeft.x, kUpperLeft.y + kStep.y},
              .title = "Roofline",
              .x_title = "arithmetic intensity, FLOP per byte moved",
              .y_title = "FLOP/s"};
  const std::vector<double> intensities = ValuesOf(picture, kIntensity, kRate);
  if (intensities.empty()) return panel.DrawEmpty("no arithmetic was counted", svg);
  const auto [least, most] = std::minmax_element(intensities.begin(), intensities.end());
  std::vector<double> rates = ValuesOf(picture, kRate, kIntensity);
  const double best = *std::max_element(rates.begin(), rates.end());
  // Makes room for the roofs over the leftmost points.
  for (const auto& [of, ceiling] : picture.ceilings)
    rates.push_back(std::min(*least * ceiling, best * 100));
  rates.push_back(best * 1.5);
  panel.x = DecimalAxis({*least / kRoomBelow, *most * kRoomAbove}, PlainLabel);
  panel.y = DecimalAxis(rates, CountLabel);
  panel.DrawFrame(svg);
  int number = 0;
  for (const auto& [of, ceiling] : picture.ceilings) {
    const auto& [device, reads] = of;
    const std::string prefix = picture.several_devices ? device + ": " : "";
    DrawCeiling({ceiling, prefix + (reads ? "read ceiling" : "copy ceiling"), number++}, panel,
                svg);
  }
  const Point best_end = panel.At(panel.x.high, best);
  svg->Line(panel.At(panel.x.low, best), best_end,
            {.color = kRoof.color, .width = kRoof.width, .dashes = "6 4"});
  DrawSeries(picture, panel, {kIntensity, kRate, /*lines=*/false}, svg);
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
  const bool reads = std::any_of(report.points.begin(), report.points.end(),
                                 [](const BenchPoint& point) { return IsOfReads(point.report); });
  const char* const ceilings =
      reads ? "the ceilings are what copying, read plus written, or reading alone reached in the "
              "same run"
            : "the copy ceiling is what copying reached in the same run, read plus written";
  svg->Text({kUpperLeft.x, 60},
            absl::StrCat(points, points == 1 ? " point" : " points",
                         "; device time without transfers; ", ceilings),
            {.color = "#555555"});
  svg->Text({kUpperLeft.x, 78}, CutMiddle(Conditions(report), kConditionsWidth),
            {.color = "#555555"});
}

}  // namespace

std::string BenchPlot(const BenchReport& report) {
  const Variation variation = VariationOf(report);
  Picture picture{.axis = variation.axis,
                  .series = SeriesOf(report, variation),
                  .implementations = {},
                  .several_devices = report.several_devices()};
  for (Series& series : picture.series) {
    std::vector<std::string>& names = picture.implementations;
    const auto found = std::find(names.begin(), names.end(), series.implementation);
    series.look = LookOf(static_cast<size_t>(found - names.begin()));
    if (found == names.end()) names.push_back(series.implementation);
  }
  for (const BenchPoint& point : report.points) {
    const bool reads = IsOfReads(point.report);
    const double ceiling = reads ? point.report.read_ceiling_bytes_per_second()
                                 : point.report.ceiling_bytes_per_second();
    if (!std::isfinite(ceiling) || ceiling <= 0) continue;
    double& largest = picture.ceilings[{point.device(), reads}];
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
