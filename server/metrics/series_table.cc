#include "server/metrics/series_table.h"

#include <array>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "proto/common/check.h"

namespace warpcall {
namespace {

constexpr double kSecondsPerNs = 1e-9;

prometheus::MetricType TypeOf(SeriesTable::Kind kind) {
  switch (kind) {
    case SeriesTable::Kind::kCounter:
    case SeriesTable::Kind::kRealCounter:
      return prometheus::MetricType::Counter;
    case SeriesTable::Kind::kDurations:
      return prometheus::MetricType::Histogram;
    case SeriesTable::Kind::kGauge:
      return prometheus::MetricType::Gauge;
  }
  return prometheus::MetricType::Untyped;
}

// Returns the text after `le="` in each bucket's line, up to its value.
std::array<std::string, kBucketCount> BoundTexts() {
  std::array<std::string, kBucketCount> texts;
  for (int i = 0; i < kBoundedBucketCount; ++i) {
    // Dividing, not multiplying by 1e-9, gives the double nearest to the bound, which prints short.
    AppendNumber(static_cast<double>(BucketUpperBoundNs(i)) / 1e9, &texts[i]);
  }
  texts[kBoundedBucketCount] = "+Inf";
  for (std::string& text : texts) text += "\"} ";
  return texts;
}

template <typename T>
void AppendLine(const std::string& start, T value, std::string* text) {
  text->append(start);
  AppendNumber(value, text);
  text->push_back('\n');
}

}  // namespace

void SeriesTable::BeginFamily(Kind kind, const char* name, const char* help) {
  WARPCALL_DCHECK(!counters_.has_value(), name);
  families_.push_back({kind, name, {}, {}});
  for (const MetricsFormat format : {MetricsFormat::kPrometheus, MetricsFormat::kOpenMetrics})
    families_.back().heads[static_cast<int>(format)] = FamilyHead(name, help, TypeOf(kind), format);
}

Cell SeriesTable::AddSeries(const Labels& labels, Appears appears) {
  WARPCALL_DCHECK(!families_.empty() && !counters_.has_value());
  Family& family = families_.back();
  const std::string text = LabelText(labels);
  const std::string braces = text.empty() ? " " : absl::StrCat("{", text, "} ");
  Series& series = family.series.emplace_back();
  series.appears = appears;
  series.sample = absl::StrCat(family.name, braces);
  switch (family.kind) {
    case Kind::kCounter:
      series.cell = counter_cells_++;
      break;
    case Kind::kDurations:
      series.cell = counter_cells_;
      counter_cells_ += kBucketCount + 1;
      series.sample = absl::StrCat(family.name, "_count", braces);
      series.sum = absl::StrCat(family.name, "_sum", braces);
      series.bucket = absl::StrCat(family.name, "_bucket{", text, text.empty() ? "" : ",", "le=\"");
      break;
    case Kind::kRealCounter:
      series.cell = real_counter_cells_++;
      break;
    case Kind::kGauge:
      series.cell = gauge_cells_++;
      break;
  }
  return series.cell;
}

void SeriesTable::Close() {
  WARPCALL_DCHECK(!counters_.has_value());
  counters_.emplace(counter_cells_);
  real_counters_.emplace(real_counter_cells_);
  gauges_ = std::vector<std::atomic<double>>(gauge_cells_);
  for (const Family& family : families_)
    for (const Series& series : family.series)
      if (family.kind == Kind::kGauge && series.appears == Appears::kWithFirst)
        gauges_[series.cell].store(std::numeric_limits<double>::quiet_NaN());
}

void SeriesTable::AppendText(MetricsFormat format, std::string* text) const {
  WARPCALL_DCHECK(counters_.has_value());
  const bool is_open = format == MetricsFormat::kOpenMetrics;
  const Exemplars::Map exemplars = is_open ? exemplars_.All() : Exemplars::Map();
  for (const Family& family : families_) {
    text->append(family.heads[static_cast<int>(format)]);
    for (const Series& series : family.series) {
      if (family.kind == Kind::kDurations)
        AppendDurations(series, exemplars, text);
      else
        AppendSample(family.kind, series, text);
    }
  }
}

void SeriesTable::AppendSample(Kind kind, const Series& series, std::string* text) const {
  const bool shows_zero = series.appears == Appears::kAtStart;
  if (kind == Kind::kCounter) {
    const uint64_t value = counters_->Sum(series.cell);
    if (value != 0 || shows_zero) AppendLine(series.sample, value, text);
    return;
  }
  const double value = kind == Kind::kRealCounter
                           ? real_counters_->Sum(series.cell)
                           : gauges_[series.cell].load(std::memory_order_relaxed);
  if (kind == Kind::kGauge ? !std::isnan(value) : value != 0 || shows_zero)
    AppendLine(series.sample, value, text);
}

void SeriesTable::AppendDurations(const Series& series, const Exemplars::Map& exemplars,
                                  std::string* text) const {
  static const std::array<std::string, kBucketCount>& bounds =
      *new std::array<std::string, kBucketCount>(BoundTexts());
  std::array<uint64_t, kBucketCount> cumulative;
  uint64_t count = 0;
  for (int i = 0; i < kBucketCount; ++i) cumulative[i] = count += counters_->Sum(series.cell + i);
  if (count == 0) return;
  text->append(series.sample);
  AppendNumber(count, text);
  text->append("\n").append(series.sum);
  AppendNumber(static_cast<double>(counters_->Sum(series.cell + kBucketCount)) * kSecondsPerNs,
               text);
  for (int i = 0; i < kBucketCount; ++i) {
    text->append("\n").append(series.bucket).append(bounds[i]);
    AppendNumber(cumulative[i], text);
    if (exemplars.empty()) continue;
    const auto found = exemplars.find(series.cell + static_cast<Cell>(i));
    if (found != exemplars.end()) AppendExemplar(found->second, text);
  }
  text->push_back('\n');
}

}  // namespace warpcall
