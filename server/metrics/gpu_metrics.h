// Turns GPU readings into metric families.
#pragma once

#include <vector>

#include "absl/types/span.h"
#include "prometheus/metric_family.h"
#include "server/engine/gpu_reading.h"

namespace warpcall {

// A value that is not known has no sample, a family without samples does not appear.
void AppendGpuFamilies(absl::Span<const GpuReading> readings,
                       std::vector<prometheus::MetricFamily>* families);

}  // namespace warpcall
