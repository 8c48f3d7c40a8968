#include "client/cli/push/page.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "client/cli/common/chart.h"
#include "client/cli/common/command.h"
#include "client/cli/common/roofline.h"
#include "client/cli/common/screen.h"
#include "proto/common/pinned_name.h"

namespace warpcall::cli {
namespace {

using client::BenchmarkResult;
using client::PushEvent;

constexpr char kHead[] = R"(<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>)";
constexpr char kStyle[] = R"(</title>
<style>
body { font: 15px/1.4 "DejaVu Sans", Verdana, sans-serif; margin: 2em; color: #222; }
pre { background: #f4f4f4; padding: 0.7em; overflow: auto; max-height: 24em; }
table { border-collapse: collapse; }
th, td { border-bottom: 1px solid #ddd; padding: 0.2em 0.7em; text-align: left; }
th.right, td.right { text-align: right; white-space: nowrap; }
p.passed { font-weight: bold; color: #00684c; }
p.failed { font-weight: bold; color: #a33c00; }
</style>
</head>
<body>
)";
constexpr char kTail[] = "</body>\n</html>\n";

// Okabe and Ito's vermilion and blue, as in `warpcall bench --plot`.
constexpr char kPushColor[] = "#d55e00";
constexpr char kOtherColor[] = "#0072b2";

constexpr Point kCorner = {95, 40};  // of the panel in its picture
constexpr double kPictureWidth = kCorner.x + kPanelSize.x + 30;
constexpr double kPictureHeight = kCorner.y + kPanelSize.y + 55;

std::string Element(const char* name, absl::string_view text) {
  return absl::StrCat("<", name, ">", EscapeMarkup(text), "</", name, ">\n");
}

// The lines of a log.
std::string Preformatted(absl::string_view text) {
  std::string lines;
  for (const absl::string_view line : absl::StrSplit(absl::StripSuffix(text, "\n"), '\n'))
    absl::StrAppend(&lines, EscapeMarkup(line), "\n");
  return absl::StrCat("<pre>", lines, "</pre>\n");
}

std::string TableRow(const char* cell, const std::vector<Table::Column>& columns,
                     const std::vector<std::string>& texts) {
  std::string row = "<tr>";
  for (size_t i = 0; i < texts.size(); ++i)
    absl::StrAppend(&row, "<", cell,
                    columns[i].align == Table::Align::kRight ? " class=\"right\">" : ">",
                    EscapeMarkup(texts[i]), "</", cell, ">");
  return absl::StrCat(row, "</tr>\n");
}

std::string HeadingRow(const std::vector<Table::Column>& columns) {
  std::vector<std::string> texts;
  for (const Table::Column& column : columns) texts.push_back(column.heading);
  return TableRow("th", columns, texts);
}

// A row of few cells, and a note over the rest of the table.
std::string NoteRow(const TimesTable::Row& row, size_t columns) {
  std::string text = "<tr>";
  for (const std::string& cell : row.cells)
    absl::StrAppend(&text, "<td>", EscapeMarkup(cell), "</td>");
  return absl::StrCat(text, "<td colspan=\"", columns - row.cells.size(), "\">",
                      EscapeMarkup(row.note), "</td></tr>\n");
}

std::string Compilations(const PushReport& report) {
  std::string page;
  for (const PushEvent& event : report.events) {
    if (!event.has_compiled()) continue;
    const v1::PushCompiled& compiled = event.compiled();
    const std::string facts = LaunchFacts(event);
    absl::StrAppend(
        &page, Element("p", absl::StrCat(compiled.kernel(), compiled.kernel().empty() ? "" : ", ",
                                         compiled.arch(), facts.empty() ? "" : ": ", facts)));
    if (!compiled.log().empty()) absl::StrAppend(&page, Preformatted(compiled.log()));
  }
  return page.empty() ? "" : absl::StrCat(Element("h2", "Compiler"), page);
}

std::string Checks(const PushReport& report) {
  const std::vector<Table::Column> columns = {
      "", "PROBLEM", "INPUTS", ">ERROR / BOUND", ">ELEMENTS", "FIRST WRONG ELEMENT", "DETAIL"};
  std::string rows;
  for (const PushEvent& event : report.events) {
    if (!event.has_checked()) continue;
    const v1::PushChecked& checked = event.checked();
    absl::StrAppend(&rows, TableRow("td", columns,
                                    {checked.passed() ? "✓" : "✗", ProblemTitle(event),
                                     checked.fill(), absl::StrFormat("%.2g", checked.max_error()),
                                     absl::StrCat(checked.checked_elements()), WrongElement(event),
                                     checked.detail()}));
  }
  if (rows.empty()) return "";
  return absl::StrCat(Element("h2", "Checks"), "<table>\n", HeadingRow(columns), rows,
                      "</table>\n");
}

std::string Times(const PushReport& report) {
  std::string page;
  for (const PushEvent& event : report.events) {
    if (!event.has_timed()) continue;
    const TimesTable times = TimesOf(event);
    absl::StrAppend(&page, Element("p", times.title), "<table>\n", HeadingRow(times.columns));
    for (const TimesTable::Row& row : times.rows) {
      absl::StrAppend(&page, row.note.empty() ? TableRow("td", times.columns, row.cells)
                                              : NoteRow(row, times.columns.size()));
    }
    absl::StrAppend(&page, "</table>\n");
    for (const std::string& note : times.notes) absl::StrAppend(&page, Element("p", note));
  }
  return page.empty() ? "" : absl::StrCat(Element("h2", "Times"), page);
}

// Elements of all problems by their error; see PushChecked.histogram.
std::vector<double> Histogram(const PushReport& report) {
  constexpr int kBinsMax = 64;
  std::vector<double> elements;
  for (const PushEvent& event : report.events) {
    const auto& histogram = event.checked().histogram();
    const int bins = std::min(histogram.size(), kBinsMax);
    elements.resize(std::max(elements.size(), static_cast<size_t>(bins)));
    for (int i = 0; i < bins; ++i)
      elements[static_cast<size_t>(i)] += static_cast<double>(std::max<int64_t>(histogram[i], 0));
  }
  return elements;
}

// The largest error of a bin, in units of the bound.
std::string BinLabel(size_t bin) {
  constexpr size_t kFractionsMax = 10;
  if (bin == 0) return "over 1";
  if (bin == 1) return "1";
  return bin - 1 <= kFractionsMax ? absl::StrCat("1/", 1 << (bin - 1))
                                  : absl::StrCat("2^-", bin - 1);
}

std::string HistogramPicture(const PushReport& report) {
  const std::vector<double> elements = Histogram(report);
  std::vector<double> counts;
  for (const double count : elements)
    if (count > 0) counts.push_back(count);
  if (counts.empty()) return "";
  counts.push_back(1);
  Panel panel{.corner = kCorner,
              .title = "Errors",
              .x_title = "error, at most this share of its bound",
              .y_title = "elements"};
  panel.x = {.low = 0, .high = static_cast<double>(elements.size())};
  const size_t step = elements.size() / 12 + 1;
  for (size_t i = 0; i < elements.size(); i += step)
    panel.x.ticks.push_back({static_cast<double>(i) + 0.5, BinLabel(i)});
  panel.y = DecimalAxis(counts, CountLabel);
  Svg svg(kPictureWidth, kPictureHeight);
  panel.DrawFrame(&svg);
  for (size_t i = 0; i < elements.size(); ++i) {
    if (elements[i] <= 0) continue;
    const double left = static_cast<double>(i) + 0.1, right = static_cast<double>(i) + 0.9;
    const Point outline[] = {panel.At(left, panel.y.low), panel.At(left, elements[i]),
                             panel.At(right, elements[i]), panel.At(right, panel.y.low)};
    const std::string color = i == 0 ? kPushColor : kOtherColor;
    svg.Band(outline, color);
    svg.Polyline(outline, {.color = color});
  }
  return absl::StrCat(Element("h2", "Errors in units of their bounds"), svg.ToString());
}

// A measurement on the roofline.
struct Work {
  double intensity = 0;  // FLOP per byte
  double flops_per_second = 0;
  bool is_push = false;
  std::string tip = {};
};

std::vector<Work> WorkOf(const PushReport& report) {
  std::vector<Work> all;
  for (const PushEvent& event : report.events) {
    for (int i = 0; i < event.timed().results_size(); ++i) {
      const BenchmarkResult& result = event.timed().results(i);
      const Work work{.intensity = static_cast<double>(result.launch().flops()) /
                                   static_cast<double>(result.launch().bytes_moved()),
                      .flops_per_second = result.flops_per_second(),
                      .is_push = i == 0,
                      .tip = absl::StrCat(PinnedName(result), " ", ProblemTitle(event), ": ",
                                          HumanTime(result.median_ns()))};
      const bool drawable = std::isfinite(work.intensity) && work.intensity > 0 &&
                            std::isfinite(work.flops_per_second) && work.flops_per_second > 0;
      if (drawable && result.error().empty()) all.push_back(work);
    }
  }
  return all;
}

// Draws the roof; the panel's axes hold it.
void DrawRoof(double bytes_ceiling, double flops_ceiling, const Panel& panel, Svg* svg) {
  if (bytes_ceiling > 0) DrawCeiling({bytes_ceiling, "copy ceiling", 0}, panel, svg);
  if (flops_ceiling <= 0) return;
  const Point end = panel.At(panel.x.high, flops_ceiling);
  svg->Line(panel.At(panel.x.low, flops_ceiling), end, kRoof);
  svg->Text({end.x - 6, end.y - 6},
            absl::StrCat("multiply-adds ", HumanRate(flops_ceiling, "FLOP/s")),
            {.size = 11, .anchor = "end", .color = "#555555", .outlined = true});
}

std::string RooflinePicture(const PushReport& report) {
  const std::vector<Work> all = WorkOf(report);
  if (all.empty()) return "";
  double bytes_ceiling = 0, flops_ceiling = 0;
  for (const PushEvent& event : report.events) {
    const v1::PushTimed& timed = event.timed();
    if (std::isfinite(timed.ceiling_bytes_per_second()))
      bytes_ceiling = std::max(bytes_ceiling, timed.ceiling_bytes_per_second());
    if (std::isfinite(timed.flops_ceiling()))
      flops_ceiling = std::max(flops_ceiling, timed.flops_ceiling());
  }
  constexpr double kRoom = 4;  // beside the points, for the roof
  std::vector<double> intensities, rates;
  for (const Work& work : all) {
    intensities.insert(intensities.end(), {work.intensity / kRoom, work.intensity * kRoom});
    rates.push_back(work.flops_per_second);
    if (bytes_ceiling > 0) rates.push_back(work.intensity * bytes_ceiling);
  }
  if (flops_ceiling > 0) rates.push_back(flops_ceiling);
  Panel panel{.corner = kCorner,
              .title = "Roofline",
              .x_title = "arithmetic intensity, FLOP per byte moved",
              .y_title = "FLOP/s"};
  panel.x = DecimalAxis(intensities, PlainLabel);
  panel.y = DecimalAxis(rates, CountLabel);
  Svg svg(kPictureWidth, kPictureHeight);
  panel.DrawFrame(&svg);
  DrawRoof(bytes_ceiling, flops_ceiling, panel, &svg);
  for (const bool push : {false, true})  // the push lies above the others
    for (const Work& work : all)
      if (work.is_push == push)
        svg.Mark(push ? Marker::kCircle : Marker::kSquare,
                 panel.At(work.intensity, work.flops_per_second), push ? kPushColor : kOtherColor,
                 work.tip);
  return absl::StrCat(Element("h2", "Roofline: the push (circles) and others (squares)"),
                      svg.ToString());
}

std::string VerdictSection(const PushReport& report) {
  const client::PushVerdict* const verdict = report.verdict();
  if (verdict == nullptr)
    return absl::StrCat(
        "<p class=\"failed\">",
        EscapeMarkup(absl::StrCat("no verdict: ", absl::StatusCodeToString(report.status.code()),
                                  ": ", report.status.message())),
        "</p>\n");
  const bool passed = ExitStatusOf(*verdict) == kExitOk;
  return absl::StrCat("<p class=\"", passed ? "passed" : "failed", "\">",
                      EscapeMarkup(VerdictLine(*verdict)), "</p>\n", Element("p", verdict->name()),
                      Element("p", StampLine(*verdict)));
}

}  // namespace

std::string PushPage(const PushReport& report) {
  const std::string title = PushTitle(report);
  return absl::StrCat(kHead, EscapeMarkup(title), kStyle, Element("h1", title),
                      VerdictSection(report), Compilations(report), Checks(report),
                      HistogramPicture(report), Times(report), RooflinePicture(report), kTail);
}

}  // namespace warpcall::cli
