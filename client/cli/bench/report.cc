#include "client/cli/bench/report.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cli/common/output.h"
#include "client/cli/common/table.h"
#include "client/cli/common/tensor_text.h"

namespace warpcall::cli {
namespace {

using client::BenchmarkResult;
using nlohmann::json;

constexpr auto kRight = Table::Align::kRight;

std::string Share(double share) { return share > 0 ? absl::StrFormat("%.0f%%", share * 100) : "-"; }

std::string Time(double nanoseconds) {
  return std::isfinite(nanoseconds) ? HumanTime(nanoseconds) : "-";
}

std::vector<std::string> Figures(const BenchmarkResult& result, double best_ns) {
  return {Time(result.median_ns),
          Time(result.p90_ns),
          HumanRate(result.bytes_per_second, "B/s"),
          Share(result.fraction_of_ceiling),
          HumanRate(result.flops_per_second, "FLOP/s"),
          Share(result.launch.theoretical_occupancy),
          result.launch.waves > 0 ? absl::StrFormat("%.2f", result.launch.waves) : "-",
          result.checked_elements > 0 ? absl::StrFormat("%.1e", result.relative_error) : "-",
          best_ns > 0 ? absl::StrFormat("%.2f", result.median_ns / best_ns) : "-"};
}

// The rows of one point; only the first says which it is.
void AddPoint(const BenchPoint& point, bool with_device, Table* table) {
  std::vector<std::string> place = {point.shape, DataTypeOption(point.data_type)};
  if (with_device) place.push_back(point.device());
  const std::vector<std::string> same(place.size());
  if (!point.report.ok()) {
    const absl::Status& status = point.report.status();
    table->AddNote(place, absl::StrCat("refused: ", absl::StatusCodeToString(status.code()), ": ",
                                       status.message()));
    return;
  }
  if (point.report->results.empty()) table->AddNote(place, "no implementation fits");
  const std::vector<BenchmarkResult> ranked = Ranked(*point.report);
  for (size_t i = 0; i < ranked.size(); ++i) {
    std::vector<std::string> cells = i == 0 ? place : same;
    cells.insert(cells.end(), {ranked[i].implementation, ranked[i].family});
    if (!ranked[i].error.empty()) {
      table->AddNote(std::move(cells), absl::StrCat("did not run: ", ranked[i].error));
      continue;
    }
    for (std::string& figure : Figures(ranked[i], ranked[0].median_ns))
      cells.push_back(std::move(figure));
    table->AddRow(std::move(cells));
  }
}

// The copy ceilings of a device, which was measured with each of its points.
struct Ceilings {
  double least = 0;
  double most = 0;
};

std::string Heading(const BenchReport& report) {
  std::map<std::string, Ceilings> devices;
  for (const BenchPoint& point : report.points) {
    if (!point.report.ok()) continue;
    const double ceiling = point.report->ceiling_bytes_per_second;
    Ceilings& ceilings =
        devices.try_emplace(point.device(), Ceilings{ceiling, ceiling}).first->second;
    ceilings.least = std::min(ceilings.least, ceiling);
    ceilings.most = std::max(ceilings.most, ceiling);
  }
  std::string text = absl::StrCat(KernelTitle(report), "\n");
  for (const auto& [device, ceilings] : devices) {
    const std::string least = HumanRate(ceilings.least, "B/s");
    const std::string most = HumanRate(ceilings.most, "B/s");
    absl::StrAppend(&text, "on ", device, ": ",
                    ceilings.most > 0 ? "measured copy ceiling " : "no copy ceiling was measured",
                    ceilings.most > 0 ? least : "", least == most ? "" : " to ",
                    least == most ? "" : most,
                    ceilings.most > 0 ? ", read plus written (100% of %COPY)\n" : "\n");
  }
  return text;
}

}  // namespace

bool BenchReport::several_devices() const {
  std::set<std::string> devices;
  for (const BenchPoint& point : points)
    if (!point.device().empty()) devices.insert(point.device());
  return devices.size() > 1;
}

std::string KernelTitle(const BenchReport& report) {
  std::string title = report.kernel;
  for (const auto& [name, value] : report.attributes) {
    const json text = ToJson(value);
    absl::StrAppend(&title, " ", name, "=",
                    text.is_string() ? text.get<std::string>() : text.dump());
  }
  return title;
}

std::vector<BenchmarkResult> Ranked(const client::BenchmarkReport& report) {
  std::vector<BenchmarkResult> ranked = report.results;
  const auto failed = std::stable_partition(ranked.begin(), ranked.end(),
                                            [](const auto& row) { return row.error.empty(); });
  // NaN would be no order.
  const auto time = [](const BenchmarkResult& row) {
    return std::isnan(row.median_ns) ? std::numeric_limits<double>::infinity() : row.median_ns;
  };
  std::stable_sort(ranked.begin(), failed,
                   [&](const auto& a, const auto& b) { return time(a) < time(b); });
  return ranked;
}

std::string ToText(const BenchReport& report) {
  const bool with_device = report.several_devices();
  std::vector<Table::Column> columns = {{"SHAPE"}, {"TYPE"}};
  if (with_device) columns.push_back({"DEVICE"});
  columns.insert(columns.end(), {{"IMPLEMENTATION"}, {"FAMILY"}});
  for (const char* heading :
       {"MEDIAN", "P90", "B/s", "%COPY", "FLOP/s", "OCC", "WAVES", "ERROR", "VS BEST"})
    columns.push_back({heading, kRight});
  Table table(std::move(columns));
  for (const BenchPoint& point : report.points) AddPoint(point, with_device, &table);
  return absl::StrCat(Heading(report), "\n", table.ToString());
}

}  // namespace warpcall::cli
