#include "client/cli/profile/report.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cli/common/csv.h"
#include "client/cli/common/table.h"

namespace warpcall::cli {
namespace {

using client::ProfileRow;
using nlohmann::json;

constexpr size_t kRowsShown = 10;
// With the other columns at their usual widths, a line has some 140 characters.
constexpr size_t kNameWidth = 36;
constexpr char kKernel[] = "kernel";
constexpr char kHost[] = "host";
constexpr auto kRight = Table::Align::kRight;

std::string Percent(double share) {
  return share < 0 ? "-" : absl::StrFormat("%.1f%%", share * 100);
}

std::vector<ProfileRow> LongestFirst(const client::ProfileReport& report, bool host) {
  std::vector<ProfileRow> rows;
  for (const ProfileRow& row : report.rows)
    if ((row.kind == kHost) == host) rows.push_back(row);
  std::stable_sort(rows.begin(), rows.end(),
                   [](const auto& a, const auto& b) { return a.total_ns > b.total_ns; });
  return rows;
}

std::string DeviceTable(const std::vector<ProfileRow>& rows) {
  std::vector<Table::Column> columns = {{"NAME"}, {"KIND"}};
  for (const char* heading : {"CALLS", "TOTAL", "MEAN", "SHARE", "REGS", "SMEM", "GRID", "BLOCK",
                              "ACHIEVED OCC", "SM %", "DRAM %"})
    columns.push_back({heading, kRight});
  Table table(std::move(columns));
  for (size_t i = 0; i < std::min(rows.size(), kRowsShown); ++i) {
    const ProfileRow& row = rows[i];
    const bool kernel = row.kind == kKernel;
    const auto if_kernel = [kernel](std::string text) {
      return kernel && !text.empty() ? std::move(text) : "-";
    };
    table.AddRow({CutMiddle(row.name, kNameWidth), row.kind, absl::StrCat(row.calls),
                  HumanTime(static_cast<double>(row.total_ns)), HumanTime(row.mean_ns),
                  Percent(row.fraction), if_kernel(absl::StrCat(row.registers_per_thread)),
                  if_kernel(HumanBytes(static_cast<double>(row.shared_memory_bytes))),
                  if_kernel(row.grid), if_kernel(row.block),
                  if_kernel(Percent(row.achieved_occupancy)), if_kernel(Percent(row.sm_throughput)),
                  if_kernel(Percent(row.dram_throughput))});
  }
  std::string text = table.ToString();
  if (rows.size() > kRowsShown)
    absl::StrAppend(&text, rows.size() - kRowsShown, " more (all: --json)\n");
  return text;
}

std::string HostTable(const std::vector<ProfileRow>& rows) {
  Table table({{"HOST PHASE"}, {"CALLS", kRight}, {"TOTAL", kRight}, {"MEAN", kRight}});
  for (const ProfileRow& row : rows)
    table.AddRow({CutMiddle(row.name, kNameWidth), absl::StrCat(row.calls),
                  HumanTime(static_cast<double>(row.total_ns)), HumanTime(row.mean_ns)});
  return table.ToString();
}

// -1: not known.
json OrNull(double share) { return share < 0 ? json() : json(share); }

json ToJson(const ProfileRow& row) {
  return {{"name", row.name},
          {"kind", row.kind},
          {"calls", row.calls},
          {"total_ns", row.total_ns},
          {"mean_ns", row.mean_ns},
          {"fraction", row.kind == kHost ? json() : json(row.fraction)},
          {"registers_per_thread", row.registers_per_thread},
          {"shared_memory_bytes", row.shared_memory_bytes},
          {"grid", row.grid},
          {"block", row.block},
          {"achieved_occupancy", OrNull(row.achieved_occupancy)},
          {"sm_throughput", OrNull(row.sm_throughput)},
          {"dram_throughput", OrNull(row.dram_throughput)},
          {"bytes", row.bytes}};
}

}  // namespace

std::string ToText(const std::string& kernel, const client::ProfileReport& report) {
  std::string text =
      absl::StrCat(kernel, " on ", report.device, " by ", report.implementation, ", ",
                   report.iterations, report.iterations == 1 ? " iteration" : " iterations", "\n\n",
                   DeviceTable(LongestFirst(report, /*host=*/false)));
  const std::vector<ProfileRow> host = LongestFirst(report, /*host=*/true);
  if (!host.empty()) absl::StrAppend(&text, "\n", HostTable(host));
  if (!report.counters_unavailable.empty())
    absl::StrAppend(
        &text, "\nno counters (ACHIEVED OCC, SM %, DRAM %): ", report.counters_unavailable, "\n");
  return text;
}

json ToJson(const std::string& kernel, const client::ProfileReport& report) {
  json rows = json::array();
  for (const ProfileRow& row : report.rows) rows.push_back(ToJson(row));
  return {{"kernel", kernel},
          {"implementation", report.implementation},
          {"device", report.device},
          {"iterations", report.iterations},
          {"counters_unavailable", report.counters_unavailable},
          {"rows", std::move(rows)}};
}

std::string ToCsv(const std::string& kernel, const client::ProfileReport& report) {
  std::string csv =
      CsvLine({"kernel", "implementation", "device", "name", "kind", "calls", "total_ns", "mean_ns",
               "fraction", "registers_per_thread", "shared_memory_bytes", "grid", "block",
               "achieved_occupancy", "sm_throughput", "dram_throughput", "bytes"});
  const auto known = [](double share) { return share < 0 ? "" : ExactNumber(share); };
  for (const ProfileRow& row : report.rows)
    absl::StrAppend(
        &csv,
        CsvLine({kernel, report.implementation, report.device, row.name, row.kind,
                 absl::StrCat(row.calls), absl::StrCat(row.total_ns), ExactNumber(row.mean_ns),
                 row.kind == kHost ? "" : ExactNumber(row.fraction),
                 absl::StrCat(row.registers_per_thread), absl::StrCat(row.shared_memory_bytes),
                 row.grid, row.block, known(row.achieved_occupancy), known(row.sm_throughput),
                 known(row.dram_throughput), absl::StrCat(row.bytes)}));
  return csv;
}

}  // namespace warpcall::cli
