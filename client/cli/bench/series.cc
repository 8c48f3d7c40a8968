#include "client/cli/bench/series.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "client/cli/common/table.h"
#include "client/cli/common/tensor_text.h"

namespace warpcall::cli {
namespace {

using client::BenchmarkResult;

// 0 for what can't be drawn.
double Drawable(double value) { return std::isfinite(value) && value > 0 ? value : 0; }

Series* FindOrAdd(const std::string& implementation, DataType type, std::vector<Series>* all) {
  for (Series& series : *all)
    if (series.implementation == implementation && series.data_type == type) return &series;
  all->push_back({implementation, type, {}});
  return &all->back();
}

SeriesPoint ToPoint(const BenchPoint& measured, const BenchmarkResult& result) {
  SeriesPoint point;
  point.bytes = static_cast<double>(result.launch.bytes_moved);
  point.time_ns = Drawable(result.median_ns);
  point.ceiling_share = Drawable(result.fraction_of_ceiling);
  point.flops_per_second = Drawable(result.flops_per_second);
  point.flops_per_byte = Drawable(static_cast<double>(result.launch.flops) / point.bytes);
  point.tip = absl::StrCat(result.implementation, " ", measured.shape, " ",
                           DataTypeOption(measured.data_type), ": ", HumanTime(point.time_ns), ", ",
                           HumanRate(Drawable(result.bytes_per_second), "B/s"), ", ",
                           HumanRate(point.flops_per_second, "FLOP/s"));
  return point;
}

}  // namespace

std::vector<Series> SeriesOf(const BenchReport& report) {
  const bool with_device = report.several_devices();
  std::vector<Series> all;
  for (const BenchPoint& measured : report.points) {
    if (!measured.report.ok()) continue;
    for (const BenchmarkResult& result : Ranked(*measured.report)) {
      const bool drawable = result.error.empty() && Drawable(result.median_ns) > 0;
      if (!drawable || result.launch.bytes_moved <= 0) continue;
      const std::string name =
          with_device ? absl::StrCat(result.implementation, " (", measured.device(), ")")
                      : result.implementation;
      FindOrAdd(name, measured.data_type, &all)->points.push_back(ToPoint(measured, result));
    }
  }
  for (Series& series : all)
    std::stable_sort(series.points.begin(), series.points.end(),
                     [](const auto& a, const auto& b) { return a.bytes < b.bytes; });
  return all;
}

}  // namespace warpcall::cli
