// Which rows this machine can't run.
#pragma once

#include <vector>

#include "kernels/registry.h"
#include "prometheus/metric_family.h"

namespace warpcall {

// Rows that are not tried yet count as those that run.
void AppendRowsUnavailable(const Registry& registry,
                           std::vector<prometheus::MetricFamily>* families);

}  // namespace warpcall
