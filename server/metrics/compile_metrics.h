// Families that tell of what is compiled at run time, and of what is kept beside it.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/compiled/counts.h"
#include "prometheus/metric_family.h"
#include "server/engine/tuning_cache.h"

namespace warpcall {

// `disk_bytes` is what the cache on disk has now. All series are there, whether this server can
// compile or not.
void AppendCompileFamilies(const compiled::Counts& counts, int64_t disk_bytes,
                           std::vector<prometheus::MetricFamily>* families);

// All series are there, whether the server keeps what it measured or not.
void AppendTuningErrors(const TuningCache::Errors& errors,
                        std::vector<prometheus::MetricFamily>* families);

}  // namespace warpcall
