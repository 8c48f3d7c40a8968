#include "client/cli/common/csv.h"

#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
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

// Fields that `row` lacks stay empty.
void AppendLine(std::vector<std::string> row, std::string* csv) {
  row.resize(std::size(kColumns));
  absl::StrAppend(csv, CsvLine(row));
}

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
    line.insert(line.end(), {ExactNumber(point.report->ceiling_bytes_per_second),
                             result.implementation, result.family, result.error});
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
