#include "client/cli/bench/series.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cli/common/catalog.h"
#include "client/cli/common/table.h"

namespace warpcall::cli {
namespace {

using client::BenchmarkResult;

// 0 for what can't be drawn.
double Drawable(double value) { return std::isfinite(value) && value > 0 ? value : 0; }

Series* FindOrAdd(const Series& key, std::vector<Series>* all) {
  for (Series& series : *all)
    if (series.implementation == key.implementation && series.data_type == key.data_type &&
        series.line == key.line)
      return &series;
  all->push_back(key);
  return &all->back();
}

SeriesPoint ToPoint(const BenchPoint& measured, const BenchmarkResult& result) {
  SeriesPoint point;
  point.bytes = static_cast<double>(result.launch().bytes_moved());
  point.place = point.bytes;
  point.time_ns = Drawable(result.median_ns());
  point.time_low_ns = Drawable(result.median_low_ns());
  point.time_high_ns = Drawable(result.median_high_ns());
  point.ceiling_share = Drawable(result.fraction_of_ceiling());
  point.flops_per_second = Drawable(result.flops_per_second());
  point.flops_per_byte = Drawable(static_cast<double>(result.launch().flops()) / point.bytes);
  point.tip = absl::StrCat(VariantName(result), " ", ProblemTitle(measured), ": ",
                           HumanTime(point.time_ns), result.unstable() ? " (unstable), " : ", ",
                           HumanRate(Drawable(result.bytes_per_second()), "B/s"), ", ",
                           HumanRate(point.flops_per_second, "FLOP/s"));
  return point;
}

// One line for an implementation whose variants change along it, one for each variant where several
// were asked for.
std::string SeriesName(const client::BenchmarkReport& report, const BenchmarkResult& result) {
  const auto same = std::count_if(report.results().begin(), report.results().end(),
                                  [&](const BenchmarkResult& other) {
                                    return other.implementation() == result.implementation();
                                  });
  return same == 1 ? result.implementation() : VariantName(result);
}

}  // namespace

std::vector<Series> SeriesOf(const BenchReport& report, const Variation& variation) {
  const bool with_device = report.several_devices();
  std::vector<Series> all;
  for (size_t i = 0; i < report.points.size(); ++i) {
    const BenchPoint& measured = report.points[i];
    for (const BenchmarkResult& result : Ranked(measured.report)) {
      const bool drawable = result.error().empty() && Drawable(result.median_ns()) > 0;
      if (!drawable || result.launch().bytes_moved() <= 0) continue;
      Series key{.implementation = SeriesName(measured.report, result),
                 .data_type = measured.data_type};
      if (with_device) absl::StrAppend(&key.implementation, " (", measured.device(), ")");
      SeriesPoint point = ToPoint(measured, result);
      if (!variation.axis.empty()) {
        point.place = variation.places[i];
        key.line = variation.lines[i];
      }
      FindOrAdd(key, &all)->points.push_back(std::move(point));
    }
  }
  for (Series& series : all)
    std::stable_sort(series.points.begin(), series.points.end(),
                     [](const auto& a, const auto& b) { return a.place < b.place; });
  return all;
}

}  // namespace warpcall::cli
