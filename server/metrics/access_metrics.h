// Metrics of who was kept out, and of files that could not be read again.
#pragma once

#include <vector>

#include "prometheus/metric_family.h"
#include "server/engine/metrics_sink.h"

namespace warpcall {

void AppendAuthRefusals(const std::vector<LabelledCount>& by_reason,
                        std::vector<prometheus::MetricFamily>* families);
void AppendReloadFailures(const std::vector<LabelledCount>& by_flag,
                          std::vector<prometheus::MetricFamily>* families);

}  // namespace warpcall
