// The page at / of the operators' port.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "kernels/compiled/sha256.h"
#include "kernels/multiply_adds.h"
#include "proto/common/human_figures.h"
#include "proto/common/printable.h"
#include "server/metrics/server_status.h"

namespace warpcall {
namespace {

constexpr char kStyle[] = R"(
body { font: 14px/1.4 "DejaVu Sans", Verdana, sans-serif; margin: 1.5em; color: #222; }
table { border-collapse: collapse; }
.wide { overflow-x: auto; }
th, td { border-bottom: 1px solid #ddd; padding: 0.2em 0.8em; text-align: left; }
th.right, td.right { text-align: right; white-space: nowrap; }
.good { font-weight: bold; color: #00684c; }
.bad { font-weight: bold; color: #a33c00; }
.quiet { color: #666; }
)";

// Replaces what the page shows by what it would show now, so that it neither flickers nor scrolls,
// and says how long the server has not answered.
constexpr char kScript[] = R"(
"use strict";
const pauseMs = 3000, answerMs = 10000;
let answered = Date.now();
async function refresh() {
  const note = document.getElementById("note");
  try {
    const reply = await fetch(location.href, {signal: AbortSignal.timeout(answerMs)});
    if (!reply.ok) throw new Error(reply.status);
    const page = new DOMParser().parseFromString(await reply.text(), "text/html");
    const main = page.querySelector("main");
    if (!main) throw new Error("not this page");
    document.querySelector("main").replaceWith(main);
    document.title = page.title;
    answered = Date.now();
    note.textContent = "";
  } catch (error) {
    note.textContent = "The server has not answered for "
        + Math.round((Date.now() - answered) / 1000) + " s; trying again.";
  }
  setTimeout(refresh, pauseMs);
}
setTimeout(refresh, pauseMs);
)";

struct Cell {
  std::string text;
  const char* style = "";  // a class of kStyle
};

std::string Tagged(const char* tag, const Cell& cell) {
  const std::string style = *cell.style == '\0' ? "" : absl::StrCat(" class=\"", cell.style, "\"");
  return absl::StrCat("<", tag, style, ">", EscapeMarkup(cell.text), "</", tag, ">");
}

// Scrolls where it is wider than the window, as on a phone. A heading that begins with '>' is one
// of figures.
class HtmlTable {
 public:
  explicit HtmlTable(const std::vector<std::string>& headings)
      : text_("<div class=\"wide\">\n<table>\n<tr>") {
    for (const std::string& heading : headings) {
      are_figures_.push_back(heading[0] == '>');
      absl::StrAppend(&text_, Tagged("th", {heading.substr(are_figures_.back() ? 1 : 0),
                                            are_figures_.back() ? "right" : ""}));
    }
    absl::StrAppend(&text_, "</tr>\n");
  }

  void AddRow(const std::vector<Cell>& cells) {
    absl::StrAppend(&text_, "<tr>");
    for (size_t i = 0; i < cells.size(); ++i)
      absl::StrAppend(&text_, Tagged("td", {CutText(cells[i].text),
                                            are_figures_[i] ? "right" : cells[i].style}));
    absl::StrAppend(&text_, "</tr>\n");
  }

  std::string ToString() const { return absl::StrCat(text_, "</table>\n</div>\n"); }

 private:
  std::vector<bool> are_figures_;
  std::string text_;
};

std::string TimeText(double seconds) { return HumanTime(seconds * 1e9); }

std::string QuantileText(const DurationCounts& durations, double q) {
  const std::optional<Quantile> quantile = QuantileOf(durations, q);
  if (!quantile.has_value()) return "-";
  return absl::StrCat(quantile->is_lower_bound ? "over " : "", TimeText(quantile->seconds));
}

std::string RateText(uint64_t count, double seconds) {
  return count == 0 || seconds <= 0 ? "0"
                                    : absl::StrFormat("%.3g", static_cast<double>(count) / seconds);
}

// "2 d 3 h", "4 min 5 s", "6 s".
std::string DurationText(double seconds) {
  constexpr std::pair<int64_t, const char*> kUnits[] = {
      {86400, "d"}, {3600, "h"}, {60, "min"}, {1, "s"}};
  const auto whole = static_cast<int64_t>(seconds);
  size_t unit = 0;
  while (unit + 1 < std::size(kUnits) && whole < kUnits[unit].first) ++unit;
  const auto& [size, name] = kUnits[unit];
  std::string text = absl::StrCat(whole / size, " ", name);
  if (unit + 1 < std::size(kUnits))
    absl::StrAppend(&text, " ", whole % size / kUnits[unit + 1].first, " ",
                    kUnits[unit + 1].second);
  return text;
}

std::string ClockText(int64_t unix_ns) {
  return absl::FormatTime("%Y-%m-%d %H:%M:%S UTC", absl::FromUnixNanos(unix_ns),
                          absl::UTCTimeZone());
}

// "warpcalld 0.1.0 on HOST": tells one server's page from another's.
std::string Heading(const ServerStatus& status) {
  return absl::StrCat("warpcalld ", CutText(status.build.version),
                      status.hostname.empty() ? "" : " on ", CutText(status.hostname));
}

std::string Summary(const ServerStatus& status) {
  const std::string readiness = CutText(status.readiness, kStatusReadinessBytesMax);
  return absl::StrCat(
      Tagged("h1", {Heading(status)}), "\n<p>",
      Tagged("span", {status.is_ready ? "ready" : "not ready", status.is_ready ? "good" : "bad"}),
      " (", EscapeMarkup(readiness), "), phase ", ServerPhaseName(status.phase), ", up ",
      DurationText(status.uptime_seconds), ", at ", ClockText(status.unix_ns), "</p>\n");
}

// About the entries that are not shown.
std::string MoreText(size_t count, size_t shown_max, const char* what) {
  if (count <= shown_max) return "";
  return absl::StrCat("<p>and ", count - shown_max, " more ", what, "</p>\n");
}

Cell Health(const DeviceStatus& device) {
  if (!device.is_open) return {"could not be opened", "bad"};
  return device.snapshot.healthy ? Cell{"healthy", "good"} : Cell{"not healthy", "bad"};
}

std::string OfTotal(int64_t used, int64_t total) {
  return absl::StrCat(HumanBytes(static_cast<double>(used)), " of ",
                      HumanBytes(static_cast<double>(total)));
}

std::string MultiplyAddsText(const MultiplyAddRates& rates) {
  std::string text;
  for (int i = 0; i < kArithmeticCount; ++i)
    if (const double rate = rates[static_cast<size_t>(i)]; rate > 0)
      absl::StrAppend(&text, text.empty() ? "" : ", ", ArithmeticName(static_cast<Arithmetic>(i)),
                      " ", HumanRate(rate, "FLOP/s"));
  return text.empty() ? "not measured" : text;
}

std::string Devices(const ServerStatus& status) {
  HtmlTable table({"Device", "Health", ">Memory", ">Tensors that stay", ">Copies", "Multiply-adds",
                   ">Queue", ">Oldest waits", ">Restarts"});
  for (size_t i = 0; i < std::min(status.devices.size(), kStatusDevicesMax); ++i) {
    const DeviceStatus& device = status.devices[i];
    const DeviceSnapshot& now = device.snapshot;
    const double copies = now.bandwidth_ceiling.bytes_per_second;
    table.AddRow({{device.name},
                  Health(device),
                  {OfTotal(now.memory_used_bytes, now.memory_total_bytes)},
                  {absl::StrCat(now.resident_tensors, ": ",
                                OfTotal(now.resident_used_bytes, now.resident_total_bytes))},
                  {copies > 0 ? HumanRate(copies, "B/s") : "not measured"},
                  {MultiplyAddsText(now.multiply_add_ceilings)},
                  {absl::StrCat(now.queue_depth)},
                  {now.queue_depth > 0 ? TimeText(now.queue_oldest_age_seconds) : "-"},
                  {absl::StrCat(now.restarts)}});
  }
  return absl::StrCat("<h2>Devices</h2>\n", table.ToString(),
                      MoreText(status.devices.size(), kStatusDevicesMax, "devices"));
}

std::string AutoText(const AutoStatus& choice) {
  if (choice.implementation.empty()) return "none can run";
  if (choice.requests == 0) return absl::StrCat(choice.implementation, ", first in order");
  return absl::StrFormat("%s, %d of %d", choice.implementation, choice.requests, choice.of);
}

void AddTraffic(const TrafficCounts& counts, double seconds, std::vector<Cell>* cells) {
  cells->push_back({RateText(CountOf(counts.answered), seconds)});
  cells->push_back({RateText(counts.failed, seconds)});
  for (const DurationCounts* durations : {&counts.answered, &counts.waited})
    for (const double q : {0.5, 0.99}) cells->push_back({QuantileText(*durations, q)});
}

std::string Kernels(const ServerStatus& status) {
  HtmlTable table({"Kernel", "auto runs", ">Requests/s", ">Failed/s", ">p50", ">p99", ">Queue p50",
                   ">Queue p99", ">Since the start"});
  uint64_t requests = 0;
  for (const KernelStatus& kernel : status.kernels) requests += kernel.requests;
  const auto add = [&](const std::string& nameless, const KernelStatus& kernel) {
    std::vector<Cell> cells = {{kernel.name.empty() ? nameless : kernel.name},
                               {kernel.name.empty() ? "" : AutoText(kernel.auto_choice)}};
    AddTraffic(kernel.last_minute, status.window_seconds, &cells);
    cells.push_back({absl::StrCat(kernel.requests)});
    table.AddRow(cells);
  };
  add("all", {.name = "", .auto_choice = {}, .requests = requests, .last_minute = TotalOf(status)});
  for (size_t i = 0; i < std::min(status.kernels.size(), kStatusKernelsMax); ++i)
    add("no kernel that exists", status.kernels[i]);
  return absl::StrCat(
      "<h2>Kernels</h2>\n",
      Tagged("p", {absl::StrFormat("Rates, times and waits of the last %.0f s. p50 and p99 are "
                                   "estimates from a histogram whose buckets double.",
                                   status.window_seconds),
                   "quiet"}),
      "\n", table.ToString(), MoreText(status.kernels.size(), kStatusKernelsMax, "kernels"));
}

std::string Inspections(const ServerStatus& status) {
  if (status.inspections.empty()) return "";
  HtmlTable table({">Ago", "When", "Call", "Kernel", "Device", ">Took", "Outcome", "Caller"});
  for (size_t i = 0; i < std::min(status.inspections.size(), kStatusInspectionsMax); ++i) {
    const RecentInspection& inspection = status.inspections[i];
    const double ago_seconds =
        std::max(0.0, static_cast<double>(status.unix_ns - inspection.unix_ns) / 1e9);
    const bool good = inspection.outcome == "OK" || inspection.outcome == "PASSED";
    const std::string kernel =
        inspection.push.empty()
            ? inspection.kernel
            : absl::StrCat(inspection.kernel, inspection.kernel.empty() ? "" : ": ",
                           inspection.push);
    table.AddRow({{DurationText(ago_seconds)},
                  {ClockText(inspection.unix_ns)},
                  {inspection.method},
                  {kernel},
                  {inspection.device},
                  {TimeText(inspection.seconds)},
                  {inspection.outcome, good ? "good" : "bad"},
                  {inspection.principal}});
  }
  return absl::StrCat("<h2>Last benchmarks, profiles, descriptions, tunings and pushes</h2>\n",
                      table.ToString());
}

// The source that allows `text` and nothing else:
// https://www.w3.org/TR/CSP3/#grammardef-hash-source
std::string HashSource(absl::string_view text) {
  const compiled::Sha256 hash = compiled::Sha256Of(text);
  return absl::StrCat("'sha256-",
                      absl::Base64Escape({reinterpret_cast<const char*>(hash.data()), hash.size()}),
                      "'");
}

}  // namespace

std::string CutText(absl::string_view text, size_t bytes_max) {
  constexpr absl::string_view kEnd = "...";
  if (text.size() <= bytes_max) return std::string(text);
  size_t bytes = bytes_max - kEnd.size();
  while (bytes > 0 && printable_text::ContinuesCharacter(text[bytes])) --bytes;
  return absl::StrCat(text.substr(0, bytes), kEnd);
}

TrafficCounts TotalOf(const ServerStatus& status) {
  TrafficCounts total;
  for (const KernelStatus& kernel : status.kernels) total += kernel.last_minute;
  return total;
}

const std::string& StatusPageHeaders() {
  static const std::string& headers = *new std::string(absl::StrCat(
      "Content-Security-Policy: default-src 'none'; style-src ", HashSource(kStyle),
      "; script-src ", HashSource(kScript),
      "; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r\n"
      "Referrer-Policy: no-referrer\r\n"));
  return headers;
}

std::string StatusPage(const ServerStatus& status) {
  return absl::StrCat(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<noscript><meta http-equiv=\"refresh\" content=\"5\"></noscript>\n<title>",
      status.is_ready ? "" : "NOT READY: ", EscapeMarkup(Heading(status)), "</title>\n<style>",
      kStyle, "</style>\n</head>\n<body>\n<main>\n", Summary(status), Devices(status),
      Kernels(status), Inspections(status),
      "</main>\n<p class=\"bad\" id=\"note\"></p>\n<p><a href=\"metrics\">metrics</a> "
      "<a href=\"healthz\">healthz</a> <a href=\"readyz\">readyz</a> "
      "<a href=\"status.json\">status.json</a></p>\n<script>",
      kScript, "</script>\n</body>\n</html>\n");
}

}  // namespace warpcall
