#include <charconv>
#include <cmath>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "client/cli/bench/report.h"
#include "client/cli/common/tensor_text.h"

namespace warpcall::cli {
namespace {

using client::BenchmarkResult;

constexpr const char* kColumns[] = {"kernel",
                                    "shape",
                                    "data_type",
                                    "device",
                                    "ceiling_bytes_per_second",
                                    "implementation",
                                    "family",
                                    "error",
                                    "mean_ns",
                                    "median_ns",
                                    "min_ns",
                                    "p90_ns",
                                    "bytes_per_second",
                                    "flops_per_second",
                                    "fraction_of_ceiling",
                                    "relative_error",
                                    "checked_elements",
                                    "iterations",
                                    "launches_per_iteration",
                                    "bytes_moved",
                                    "flops",
                                    "theoretical_occupancy",
                                    "waves",
                                    "gpu_kernels"};

// The fewest digits that read back as the same number; nothing for what is none.
std::string Exact(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char digits[32];
  return {digits, std::to_chars(digits, digits + sizeof(digits), value).ptr};
}

std::string Quoted(absl::string_view field) {
  if (field.find_first_of(",\"\r\n") == absl::string_view::npos) return std::string(field);
  return absl::StrCat("\"", absl::StrReplaceAll(field, {{"\"", "\"\""}}), "\"");
}

// Fields that `row` lacks stay empty.
void AppendLine(std::vector<std::string> row, std::string* csv) {
  row.resize(std::size(kColumns));
  for (std::string& field : row) field = Quoted(field);
  absl::StrAppend(csv, absl::StrJoin(row, ","), "\n");
}

std::vector<std::string> Figures(const BenchmarkResult& result) {
  return {Exact(result.mean_ns),
          Exact(result.median_ns),
          Exact(result.min_ns),
          Exact(result.p90_ns),
          Exact(result.bytes_per_second),
          Exact(result.flops_per_second),
          Exact(result.fraction_of_ceiling),
          result.checked_elements > 0 ? Exact(result.relative_error) : "",
          absl::StrCat(result.checked_elements),
          absl::StrCat(result.iterations),
          absl::StrCat(result.launches_per_iteration),
          absl::StrCat(result.launch.bytes_moved),
          absl::StrCat(result.launch.flops),
          Exact(result.launch.theoretical_occupancy),
          Exact(result.launch.waves),
          absl::StrCat(result.launch.gpu_kernels)};
}

void AppendPoint(const BenchReport& report, const BenchPoint& point, std::string* csv) {
  const std::vector<std::string> place = {report.kernel, point.shape,
                                          DataTypeOption(point.data_type), point.device()};
  if (!point.report.ok()) {
    const absl::Status& status = point.report.status();
    std::vector<std::string> line = place;
    line.insert(line.end(),
                {"", "", "",
                 absl::StrCat(absl::StatusCodeToString(status.code()), ": ", status.message())});
    return AppendLine(std::move(line), csv);
  }
  for (const BenchmarkResult& result : Ranked(*point.report)) {
    std::vector<std::string> line = place;
    line.insert(line.end(), {Exact(point.report->ceiling_bytes_per_second), result.implementation,
                             result.family, result.error});
    if (result.error.empty()) {
      const std::vector<std::string> figures = Figures(result);
      line.insert(line.end(), figures.begin(), figures.end());
    }
    AppendLine(std::move(line), csv);
  }
}

}  // namespace

std::string ToCsv(const BenchReport& report) {
  std::string csv;
  AppendLine({std::begin(kColumns), std::end(kColumns)}, &csv);
  for (const BenchPoint& point : report.points) AppendPoint(report, point, &csv);
  return csv;
}

}  // namespace warpcall::cli
