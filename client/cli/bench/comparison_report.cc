// Comparisons as text and JSON.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cli/bench/comparison.h"
#include "client/cli/common/table.h"

namespace warpcall::cli {
namespace {

using nlohmann::json;

constexpr auto kRight = Table::Align::kRight;
constexpr size_t kNameWidth = 22;
constexpr size_t kConditionWidth = 38;

std::string Time(const std::optional<MeasuredRow>& row) {
  return row.has_value() && row->error.empty() && row->median_ns > 0 ? HumanTime(row->median_ns)
                                                                     : "-";
}

// The interval in percent of the median, "-1.2 +0.8".
std::string Interval(const std::optional<MeasuredRow>& row) {
  if (!row.has_value() || !row->error.empty() || !(row->low_ns > 0)) return "-";
  return absl::StrFormat("-%.1f +%.1f", 100 * (1 - row->low_ns / row->median_ns),
                         100 * (row->high_ns / row->median_ns - 1));
}

Table RowTable() {
  return Table({{"IMPLEMENTATION"},
                {"BEFORE", kRight},
                {"95%", kRight},
                {"AFTER", kRight},
                {"95%", kRight},
                {"RATIO", kRight},
                {"VERDICT"}});
}

void AddRow(const ComparedRow& row, Table* table) {
  table->AddRow({CutMiddle(row.either().implementation, kNameWidth), Time(row.before),
                 Interval(row.before), Time(row.after), Interval(row.after),
                 row.ratio > 0 ? absl::StrFormat("%.3f", row.ratio) : "-", row.verdict});
}

std::string PlaceOf(const ComparedRow& row) {
  const MeasuredRow& either = row.either();
  return absl::StrCat(either.shape, " ", either.data_type,
                      either.device.empty() ? "" : absl::StrCat(" on ", either.device));
}

json ToJson(const std::optional<MeasuredRow>& row) {
  if (!row.has_value()) return nullptr;
  return {{"median_ns", row->median_ns},    {"median_low_ns", row->low_ns},
          {"median_high_ns", row->high_ns}, {"iterations", row->samples},
          {"unstable", row->unstable},      {"error", row->error}};
}

json OrNull(double value) { return value > 0 ? json(value) : json(); }

}  // namespace

std::string ToText(const BenchComparison& comparison) {
  constexpr size_t kIndent = 2;
  std::string text =
      Fitted("",
             absl::StrCat(comparison.kernel, comparison.after_attributes.empty() ? "" : " ",
                          comparison.after_attributes, ": ", comparison.before_name, ", then ",
                          comparison.after_name),
             kIndent);
  for (const ComparedDevice& device : comparison.devices) {
    Table table({{""}, {"BEFORE"}, {"AFTER"}});
    for (const ConditionLine& line : device.conditions)
      table.AddRow({line.name, CutMiddle(line.before.empty() ? "-" : line.before, kConditionWidth),
                    CutMiddle(line.after.empty() ? "-" : line.after, kConditionWidth)});
    absl::StrAppend(&text, "\n", table.ToString());
  }
  for (const std::string& warning : comparison.warnings)
    absl::StrAppend(&text, Fitted("warning: ", warning, kIndent));
  // Rows of one place, wherever they stand, in one table.
  std::vector<std::string> places;
  for (const ComparedRow& row : comparison.rows)
    if (std::find(places.begin(), places.end(), PlaceOf(row)) == places.end())
      places.push_back(PlaceOf(row));
  for (const std::string& place : places) {
    Table table = RowTable();
    for (const ComparedRow& row : comparison.rows)
      if (PlaceOf(row) == place) AddRow(row, &table);
    absl::StrAppend(&text, "\n", Fitted("", place, kIndent), table.ToString());
  }
  return text;
}

json ToJson(const BenchComparison& comparison) {
  json devices = json::array(), rows = json::array();
  for (const ComparedDevice& device : comparison.devices) {
    json lines = json::array();
    for (const ConditionLine& line : device.conditions)
      lines.push_back({{"name", line.name},
                       {"before", line.before},
                       {"after", line.after},
                       {"differs", line.differs}});
    devices.push_back({{"device", device.name}, {"lines", std::move(lines)}});
  }
  for (const ComparedRow& row : comparison.rows) {
    const MeasuredRow& either = row.either();
    rows.push_back({{"shape", either.shape},
                    {"data_type", either.data_type},
                    {"device", either.device},
                    {"implementation", either.implementation},
                    {"before", ToJson(row.before)},
                    {"after", ToJson(row.after)},
                    {"ratio", OrNull(row.ratio)},
                    {"ratio_low", OrNull(row.ratio_low)},
                    {"ratio_high", OrNull(row.ratio_high)},
                    {"verdict", row.verdict}});
  }
  return {{"kernel", comparison.kernel},
          {"attributes",
           {{"before", comparison.before_attributes}, {"after", comparison.after_attributes}}},
          {"files", {{"before", comparison.before_name}, {"after", comparison.after_name}}},
          {"conditions", std::move(devices)},
          {"warnings", comparison.warnings},
          {"rows", std::move(rows)}};
}

}  // namespace warpcall::cli
