#include "server/metrics/compile_metrics.h"

#include <cstddef>
#include <limits>
#include <utility>

#include "kernels/common/duration_buckets.h"

namespace warpcall {
namespace {

using compiled::Counts;
using prometheus::MetricType;

struct CacheFamily {
  const char* name;
  const char* help;
  MetricType type;
  int64_t memory;
  int64_t disk;
};

void Append(const CacheFamily& family, std::vector<prometheus::MetricFamily>* families) {
  prometheus::MetricFamily shown = {family.name, family.help, family.type, {}};
  for (const auto& [cache, value] :
       {std::pair("memory", family.memory), std::pair("disk", family.disk)}) {
    prometheus::ClientMetric& metric = shown.metric.emplace_back();
    metric.label = {{"cache", cache}};
    (family.type == MetricType::Counter ? metric.counter.value : metric.gauge.value) =
        static_cast<double>(value);
  }
  families->push_back(std::move(shown));
}

prometheus::MetricFamily Durations(const Counts& counts) {
  prometheus::MetricFamily family = {"warpcall_compile_seconds",
                                     "Time to compile a kernel, without the caches.",
                                     MetricType::Histogram,
                                     {}};
  prometheus::ClientMetric metric;
  auto& histogram = metric.histogram;
  uint64_t cumulative = 0;
  for (int i = 0; i < kBucketCount; ++i) {
    cumulative += static_cast<uint64_t>(counts.compilations[static_cast<size_t>(i)]);
    // Dividing gives the double nearest to the bound, which prints short.
    const double bound = i < kBoundedBucketCount ? static_cast<double>(BucketUpperBoundNs(i)) / 1e9
                                                 : std::numeric_limits<double>::infinity();
    histogram.bucket.push_back({cumulative, bound});
  }
  histogram.sample_count = cumulative;
  histogram.sample_sum = static_cast<double>(counts[Counts::kCompileNs]) / 1e9;
  if (cumulative > 0) family.metric.push_back(std::move(metric));  // appears with the first
  return family;
}

}  // namespace

void AppendCompileFamilies(const Counts& counts, int64_t disk_bytes,
                           std::vector<prometheus::MetricFamily>* families) {
  families->push_back(Durations(counts));
  Append({"warpcall_compile_cache_hits_total", "Compiled kernels found in a cache, by cache.",
          MetricType::Counter, counts[Counts::kMemoryHits], counts[Counts::kDiskHits]},
         families);
  Append({"warpcall_compile_cache_misses_total",
          "Kernels not found in a cache, by cache; those not found on disk were compiled.",
          MetricType::Counter, counts[Counts::kMemoryMisses], counts[Counts::kDiskMisses]},
         families);
  Append({"warpcall_compile_cache_bytes", "Sources and machine code in a cache.", MetricType::Gauge,
          counts[Counts::kMemoryBytes], disk_bytes},
         families);
}

void AppendTuningErrors(const TuningCache::Errors& errors,
                        std::vector<prometheus::MetricFamily>* families) {
  prometheus::MetricFamily family = {"warpcall_tuning_cache_errors_total",
                                     "Failures to read or write the file of --tuning_cache.",
                                     MetricType::Counter,
                                     {}};
  for (const auto& [operation, value] :
       {std::pair("read", errors.read), std::pair("write", errors.write)}) {
    prometheus::ClientMetric& metric = family.metric.emplace_back();
    metric.label = {{"operation", operation}};
    metric.counter.value = static_cast<double>(value);
  }
  families->push_back(std::move(family));
}

}  // namespace warpcall
