#include "client/cli/top/view.h"

#include <algorithm>
#include <functional>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cli/common/table.h"
#include "proto/common/human_figures.h"
#include "proto/common/printable.h"

namespace warpcall::cli {
namespace {

constexpr char kNameless[] = "(no such kernel)";

std::string SecondsText(double seconds) { return HumanTime(seconds * 1e9); }

std::string QuantileText(const TopQuantile& quantile) {
  if (quantile.seconds < 0) return "-";
  return absl::StrCat(quantile.is_lower_bound ? ">" : "", SecondsText(quantile.seconds));
}

std::string RateText(double rate) { return rate == 0 ? "0" : absl::StrFormat("%.3g", rate); }

std::string AutoText(const TopKernel& kernel) {
  if (kernel.name.empty()) return "-";
  if (kernel.auto_implementation.empty()) return "none";
  return absl::StrCat(kernel.auto_implementation, kernel.auto_requests == 0 ? " (first)" : "");
}

// Figures of a column sort by `value`, names by their text.
struct Column {
  const char* heading;
  std::function<std::string(const TopKernel&)> text;
  std::function<double(const TopKernel&)> value = nullptr;
};

const std::vector<Column>& Columns() {
  static const std::vector<Column>& columns = *new std::vector<Column>{
      {"KERNEL", [](const TopKernel& k) { return k.name.empty() ? kNameless : k.name; }},
      {"REQ/S", [](const TopKernel& k) { return RateText(k.last_minute.requests_per_second); },
       [](const TopKernel& k) { return k.last_minute.requests_per_second; }},
      {"FAIL/S", [](const TopKernel& k) { return RateText(k.last_minute.failed_per_second); },
       [](const TopKernel& k) { return k.last_minute.failed_per_second; }},
      {"P50", [](const TopKernel& k) { return QuantileText(k.last_minute.p50); },
       [](const TopKernel& k) { return k.last_minute.p50.seconds; }},
      {"P99", [](const TopKernel& k) { return QuantileText(k.last_minute.p99); },
       [](const TopKernel& k) { return k.last_minute.p99.seconds; }},
      {"QUEUE P99", [](const TopKernel& k) { return QuantileText(k.last_minute.queue_p99); },
       [](const TopKernel& k) { return k.last_minute.queue_p99.seconds; }},
      {"TOTAL", [](const TopKernel& k) { return absl::StrCat(k.requests); },
       [](const TopKernel& k) { return static_cast<double>(k.requests); }},
      {"AUTO", AutoText},
  };
  return columns;
}

bool Contains(const std::string& name, const std::string& filter) {
  return absl::StrContains(absl::AsciiStrToLower(name), absl::AsciiStrToLower(filter));
}

std::vector<TopKernel> Wanted(const TopStatus& status, const TopView& view) {
  std::vector<TopKernel> kernels;
  for (const TopKernel& kernel : status.kernels)
    if (view.filter.empty() || Contains(kernel.name, view.filter)) kernels.push_back(kernel);
  const Column& column = Columns()[view.sort_column];
  std::stable_sort(kernels.begin(), kernels.end(), [&](const TopKernel& a, const TopKernel& b) {
    return column.value == nullptr ? column.text(a) < column.text(b)
                                   : column.value(a) > column.value(b);
  });
  return kernels;
}

std::string Kernels(const TopStatus& status, const TopView& view, const Screen& screen) {
  std::vector<Table::Column> headings;
  for (size_t i = 0; i < Columns().size(); ++i) {
    const Column& column = Columns()[i];
    headings.emplace_back(absl::StrCat(column.heading, i == view.sort_column ? "*" : ""),
                          column.value == nullptr ? Table::Align::kLeft : Table::Align::kRight);
  }
  Table table(std::move(headings));
  const std::vector<TopKernel> kernels = Wanted(status, view);
  for (const TopKernel& kernel : kernels) {
    std::vector<std::string> cells;
    for (const Column& column : Columns()) cells.push_back(column.text(kernel));
    table.AddRow(std::move(cells));
  }
  if (kernels.empty()) table.AddNote({}, absl::StrCat("no kernel's name contains ", view.filter));
  return table.ToString(screen);
}

std::string MultiplyAddsText(const TopDevice& device) {
  std::string text;
  for (const auto& [name, rate] : device.multiply_adds)
    absl::StrAppend(&text, text.empty() ? "" : ", ", name, " ", HumanRate(rate, "FLOP/s"));
  return text.empty() ? "-" : text;
}

std::string Devices(const TopStatus& status, const Screen& screen) {
  Table table(
      {"DEVICE", "HEALTH", ">QUEUE", ">OLDEST", ">MEMORY", ">TENSORS", ">COPY", "MULTIPLY-ADDS"});
  for (const TopDevice& device : status.devices) {
    table.AddRow(
        {device.name,
         !device.is_open  ? "not opened"
         : device.healthy ? "healthy"
                          : "NOT HEALTHY",
         absl::StrCat(device.queue_depth),
         device.queue_depth == 0 ? "-" : SecondsText(device.queue_oldest_seconds),
         absl::StrCat(HumanBytes(device.memory_used_bytes), " of ",
                      HumanBytes(device.memory_total_bytes)),
         absl::StrCat(device.resident_tensors, ": ", HumanBytes(device.resident_used_bytes)),
         HumanRate(device.copy_bytes_per_second, "B/s"), MultiplyAddsText(device)});
  }
  return table.ToString(screen);
}

std::string Inspections(const TopStatus& status, const Screen& screen) {
  if (status.inspections.empty()) return "";
  Table table({">AGO", "CALL", "KERNEL", "OUTCOME", ">TOOK", "CALLER"});
  for (const TopInspection& inspection : status.inspections)
    table.AddRow({SecondsText(std::max(0.0, status.unix_seconds - inspection.unix_seconds)),
                  inspection.method, inspection.push.empty() ? inspection.kernel : inspection.push,
                  inspection.outcome, SecondsText(inspection.seconds),
                  inspection.principal.empty() ? "-" : inspection.principal});
  return absl::StrCat("\n", table.ToString(screen));
}

std::string Wrapped(const std::string& text, const Screen& screen) {
  std::string lines;
  for (const std::string& line : WrapText(Printable(text), screen.columns))
    absl::StrAppend(&lines, line, "\n");
  return lines;
}

std::string Header(const TopStatus& status, const Screen& screen) {
  const TopTraffic& all = status.last_minute;
  return absl::StrCat(
      Wrapped(absl::StrCat(
                  "warpcalld ", status.version, " at ", status.address, ", ",
                  status.ready ? "ready" : "NOT READY", " (", status.readiness, "), phase ",
                  status.phase, ", up ",
                  absl::FormatDuration(absl::Seconds(static_cast<int64_t>(status.uptime_seconds)))),
              screen),
      Wrapped(absl::StrFormat("last %.0f s: %s requests/s, %s failed/s, p50 %s, p99 %s, queue p99 "
                              "%s",
                              status.window_seconds, RateText(all.requests_per_second),
                              RateText(all.failed_per_second), QuantileText(all.p50),
                              QuantileText(all.p99), QuantileText(all.queue_p99)),
              screen));
}

}  // namespace

size_t TopColumns() { return Columns().size(); }

std::string TopText(const TopStatus& status, const TopView& view, const Screen& screen) {
  return absl::StrCat(Header(status, screen), "\n", Devices(status, screen), "\n",
                      Kernels(status, view, screen), Inspections(status, screen));
}

std::string TopKeys(const TopView& view) {
  if (view.is_typing)
    return absl::StrCat("filter: ", Printable(view.filter), "_  (Enter keeps, Esc clears)");
  return absl::StrCat(view.is_paused ? "PAUSED  " : "", "q quit  s <- -> sort  / filter",
                      view.filter.empty() ? "" : absl::StrCat(" (", Printable(view.filter), ")"),
                      "  space pause");
}

}  // namespace warpcall::cli
