// Families that tell of what is compiled at run time.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/compiled/counts.h"
#include "prometheus/metric_family.h"

namespace warpcall {

// `disk_bytes` is what the cache on disk has now. All series are there, whether this server can
// compile or not.
void AppendCompileFamilies(const compiled::Counts& counts, int64_t disk_bytes,
                           std::vector<prometheus::MetricFamily>* families);

}  // namespace warpcall
