// All series that are counted here, laid out once: a series is a cell number, so that counting is
// an array access. Prometheus-cpp's own metrics are not used: its histogram locks a mutex per
// observation and its families look labels up by string.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kernels/common/duration_buckets.h"
#include "proto/common/check.h"
#include "server/metrics/exemplars.h"
#include "server/metrics/sharded_counters.h"
#include "server/metrics/text_format.h"

namespace warpcall {

// Number of a series among those of its kind.
using Cell = uint32_t;
inline constexpr Cell kNoCell = UINT32_MAX;

// First BeginFamily and AddSeries from one thread; then Close; from then on every other member,
// thread-safe.
class SeriesTable {
 public:
  enum class Kind : uint8_t {
    kCounter,      // exact up to 2^64
    kRealCounter,  // for what would pass 2^64 within weeks: bytes and operations of a GPU; exact up
                   // to 2^53
    kDurations,    // histogram, ns in, seconds out
    kGauge,        // the last value set
  };

  // When a series is first shown: with value 0 from the start, or once something was counted or
  // set.
  enum class Appears : uint8_t { kAtStart, kWithFirst };

  void BeginFamily(Kind kind, const char* name, const char* help);
  // A series of the family begun last, starting at 0; durations are shown with the first. Cells of
  // one family follow each other, kBucketCount + 1 apart for durations and 1 apart otherwise.
  Cell AddSeries(const Labels& labels, Appears appears = Appears::kAtStart);
  void Close();

  // Each takes a cell of its own kind. Lock-free.
  void Add(Cell counter, uint64_t delta) {
    WARPCALL_DCHECK(counter < counter_cells_, counter, counter_cells_);
    counters_->Add(counter, delta);
  }
  void AddReal(Cell real_counter, double delta) {
    WARPCALL_DCHECK(real_counter < real_counter_cells_ && delta >= 0, real_counter, delta);
    real_counters_->Add(real_counter, delta);
  }
  // A clock that was read out of order counts as 0.
  void Observe(Cell durations, int64_t ns) {
    WARPCALL_DCHECK(durations < counter_cells_, durations, counter_cells_);
    counters_->Add(durations + BucketOf(ns), 1);
    counters_->Add(durations + kBucketCount, static_cast<uint64_t>(std::max<int64_t>(ns, 0)));
  }
  // After Observe, for one of the few requests that somebody traces: its bucket's exemplar.
  void KeepExemplar(Cell durations, const Exemplar& exemplar) {
    exemplars_.Keep(durations + BucketOf(exemplar.ns), exemplar);
  }
  void Set(Cell gauge, double value) {
    // Reading first keeps the line shared while the value stays what it was, the usual case.
    WARPCALL_DCHECK(gauge < gauges_.size(), gauge, gauges_.size());
    std::atomic<double>& cell = gauges_[gauge];
    if (cell.load(std::memory_order_relaxed) != value) {
      cell.store(value, std::memory_order_relaxed);
    }
  }

  // The present value of a counter, or of one of the kBucketCount buckets from a histogram's cell
  // on.
  uint64_t Value(Cell counter) const {
    WARPCALL_DCHECK(counter < counter_cells_, counter, counter_cells_);
    return counters_->Sum(counter);
  }

  // Every family with the present values of the series that are shown, in OpenMetrics with
  // exemplars. A histogram's count is the sum of its buckets as they were read, so that it fits
  // them whatever is being recorded meanwhile.
  void AppendText(MetricsFormat format, std::string* text) const;

 private:
  // The text before a series' numbers. Only the numbers change between scrapes.
  struct Series {
    Cell cell;
    Appears appears;
    std::string sample;  // `name{labels} `; `name_count{labels} ` of durations
    std::string sum;     // durations only: `name_sum{labels} `
    std::string bucket;  // durations only: `name_bucket{labels,le="`
  };
  struct Family {
    Kind kind;
    std::string name;
    std::string heads[2];  // by MetricsFormat
    std::vector<Series> series;
  };

  void AppendSample(Kind kind, const Series& series, std::string* text) const;
  void AppendDurations(const Series& series, const Exemplars::Map& exemplars,
                       std::string* text) const;

  std::vector<Family> families_;
  Cell counter_cells_ = 0;
  Cell real_counter_cells_ = 0;
  Cell gauge_cells_ = 0;
  std::optional<ShardedCounters<uint64_t>> counters_;
  std::optional<ShardedCounters<double>> real_counters_;
  std::vector<std::atomic<double>> gauges_;  // NaN: shown with the first value, which is to come
  Exemplars exemplars_;
};

}  // namespace warpcall
