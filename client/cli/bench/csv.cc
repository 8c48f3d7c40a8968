#include "client/cli/common/csv.h"

#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cli/bench/report.h"
#include "client/cli/common/attributes.h"
#include "client/cli/common/version.h"

namespace warpcall::cli {
namespace {

using client::BenchmarkResult;

constexpr const char* kColumns[] = {
    "kernel", "shape", "data_type", "device", "ceiling_bytes_per_second", "implementation",
    "family", "error", "mean_ns", "median_ns", "min_ns", "p90_ns", "bytes_per_second",
    "flops_per_second", "fraction_of_ceiling", "relative_error", "checked_elements", "iterations",
    "launches_per_iteration", "bytes_moved", "flops", "theoretical_occupancy", "waves",
    "gpu_kernels", "p10_ns", "median_low_ns", "median_high_ns", "noise", "unstable", "verdict",
    "max_error", "predicted_ns", "notes",
    // Of the point, as far as the server said.
    "attributes", "seed", "flops_ceiling", "host", "device_kind", "device_description", "driver",
    "cuda", "server_version", "client_version", "sm_clock_mhz_min", "sm_clock_mhz_max",
    "memory_clock_mhz", "temperature_celsius", "power_watts", "throttle_reasons", "samples_dropped",
    "started_unix_ns"};
// The first of those of the point.
constexpr size_t kConditionsBegin = 33;
static_assert(std::string_view(kColumns[kConditionsBegin]) == "attributes");

std::vector<std::string> Figures(const BenchmarkResult& result) {
  return {ExactNumber(result.mean_ns),
          ExactNumber(result.median_ns),
          ExactNumber(result.min_ns),
          ExactNumber(result.p90_ns),
          ExactNumber(result.bytes_per_second),
          ExactNumber(result.flops_per_second),
          ExactNumber(result.fraction_of_ceiling),
          result.checked_elements > 0 ? ExactNumber(result.relative_error) : "",
          absl::StrCat(result.checked_elements),
          absl::StrCat(result.iterations),
          absl::StrCat(result.launches_per_iteration),
          absl::StrCat(result.launch.bytes_moved),
          absl::StrCat(result.launch.flops),
          ExactNumber(result.launch.theoretical_occupancy),
          ExactNumber(result.launch.waves),
          absl::StrCat(result.launch.gpu_kernels),
          ExactNumber(result.p10_ns),
          ExactNumber(result.median_low_ns),
          ExactNumber(result.median_high_ns),
          ExactNumber(result.noise),
          result.unstable ? "true" : "false",
          result.verdict,
          result.checked_elements > 0 ? ExactNumber(result.max_error) : "",
          ""};
}

std::string OrEmpty(double value) { return value > 0 ? ExactNumber(value) : ""; }

std::vector<std::string> Conditions(const BenchReport& report, const BenchPoint& point) {
  const client::RunStamp& stamp = point.report.stamp;
  const auto kind = report.server.device_kinds.find(point.device());
  std::vector<std::string> attributes;
  for (const auto& [name, value] : report.attributes)
    attributes.push_back(absl::StrCat(name, "=", AttributeText(value)));
  return {absl::StrJoin(attributes, " "),
          absl::StrCat(point.call.seed),
          OrEmpty(point.report.flops_ceiling),
          report.server.host,
          kind == report.server.device_kinds.end() ? "" : kind->second,
          stamp.device_description,
          stamp.driver,
          stamp.cuda,
          stamp.server_version.empty() ? report.server.version : stamp.server_version,
          ClientVersion(),
          OrEmpty(stamp.sm_clock_mhz_min),
          OrEmpty(stamp.sm_clock_mhz_max),
          OrEmpty(stamp.memory_clock_mhz),
          OrEmpty(stamp.temperature_celsius),
          OrEmpty(stamp.power_watts),
          absl::StrJoin(stamp.throttle_reasons, "; "),
          stamp.started_unix_ns > 0 ? absl::StrCat(stamp.samples_dropped) : "",
          stamp.started_unix_ns > 0 ? absl::StrCat(stamp.started_unix_ns) : ""};
}

// Fields that `row` lacks before the conditions stay empty.
std::string Line(std::vector<std::string> row, const std::vector<std::string>& conditions) {
  row.resize(kConditionsBegin);
  row.insert(row.end(), conditions.begin(), conditions.end());
  return CsvLine(row);
}

void AppendPoint(const BenchReport& report, const BenchPoint& point, std::string* csv) {
  const std::vector<std::string> place = {report.kernel, point.shape, DataTypeName(point.data_type),
                                          point.device()};
  const std::vector<std::string> conditions = Conditions(report, point);
  for (const BenchmarkResult& result : Ranked(point.report)) {
    std::vector<std::string> line = place;
    line.insert(line.end(), {OrEmpty(point.report.ceiling_bytes_per_second), result.implementation,
                             result.family, result.error});
    if (result.error.empty()) {
      const std::vector<std::string> figures = Figures(result);
      line.insert(line.end(), figures.begin(), figures.end());
      line.push_back(absl::StrJoin(Notes(point, result), "; "));
    }
    line.resize(kConditionsBegin);
    if (result.predicted_ns > 0) line[kConditionsBegin - 2] = ExactNumber(result.predicted_ns);
    absl::StrAppend(csv, Line(std::move(line), conditions));
  }
  if (point.status.ok()) return;
  std::vector<std::string> line = place;
  line.insert(line.end(), {"", "", "",
                           absl::StrCat(absl::StatusCodeToString(point.status.code()), ": ",
                                        point.status.message())});
  absl::StrAppend(csv, Line(std::move(line), conditions));
}

}  // namespace

std::string ToCsv(const BenchReport& report) {
  std::string csv;
  absl::StrAppend(&csv, CsvLine({std::begin(kColumns), std::end(kColumns)}));
  for (const BenchPoint& point : report.points) AppendPoint(report, point, &csv);
  return csv;
}

}  // namespace warpcall::cli
