#include "server/metrics/series_table.h"

#include <limits>
#include <utility>

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

}  // namespace

void SeriesTable::BeginFamily(Kind kind, const char* name, const char* help) {
  Family& family = families_.emplace_back();
  family.kind = kind;
  family.prototype.name = name;
  family.prototype.help = help;
  family.prototype.type = TypeOf(kind);
}

Cell SeriesTable::AddSeries(Labels labels) {
  Family& family = families_.back();
  family.prototype.metric.emplace_back().label = std::move(labels);
  Cell cell = 0;
  switch (family.kind) {
    case Kind::kCounter:
      cell = counter_cells_++;
      break;
    case Kind::kDurations:
      cell = counter_cells_;
      counter_cells_ += kBucketCount + 1;
      break;
    case Kind::kRealCounter:
      cell = real_counter_cells_++;
      break;
    case Kind::kGauge:
      cell = gauge_cells_++;
      break;
  }
  family.cells.push_back(cell);
  return cell;
}

void SeriesTable::Close() {
  counters_.emplace(counter_cells_);
  real_counters_.emplace(real_counter_cells_);
  gauges_ = std::vector<std::atomic<double>>(gauge_cells_);
}

std::vector<prometheus::MetricFamily> SeriesTable::Collect() const {
  std::vector<prometheus::MetricFamily> result;
  result.reserve(families_.size());
  for (const Family& family : families_) {
    prometheus::MetricFamily& copy = result.emplace_back(family.prototype);
    for (size_t i = 0; i < copy.metric.size(); ++i) {
      Fill(family.kind, family.cells[i], &copy.metric[i]);
    }
  }
  return result;
}

void SeriesTable::Fill(Kind kind, Cell cell, prometheus::ClientMetric* metric) const {
  switch (kind) {
    case Kind::kCounter:
      metric->counter.value = static_cast<double>(counters_->Sum(cell));
      return;
    case Kind::kRealCounter:
      metric->counter.value = real_counters_->Sum(cell);
      return;
    case Kind::kGauge:
      metric->gauge.value = gauges_[cell].load(std::memory_order_relaxed);
      return;
    case Kind::kDurations:
      break;
  }
  prometheus::ClientMetric::Histogram& histogram = metric->histogram;
  histogram.bucket.resize(kBucketCount);
  for (int i = 0; i < kBucketCount; ++i) {
    histogram.sample_count += counters_->Sum(cell + i);
    histogram.bucket[i].cumulative_count = histogram.sample_count;
    // Dividing, not multiplying by 1e-9, gives the double nearest to the bound, which prints short.
    histogram.bucket[i].upper_bound = i < kBoundedBucketCount
                                          ? static_cast<double>(BucketUpperBoundNs(i)) / 1e9
                                          : std::numeric_limits<double>::infinity();
  }
  histogram.sample_sum = static_cast<double>(counters_->Sum(cell + kBucketCount)) * kSecondsPerNs;
}

}  // namespace warpcall
