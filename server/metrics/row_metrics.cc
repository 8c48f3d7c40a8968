#include "server/metrics/row_metrics.h"

#include <utility>

namespace warpcall {

void AppendRowsUnavailable(const Registry& registry,
                           std::vector<prometheus::MetricFamily>* families) {
  prometheus::MetricFamily family = {"warpcall_rows_unavailable",
                                     "1 for a row that this machine can't run, 0 for others.",
                                     prometheus::MetricType::Gauge,
                                     {}};
  for (const Row& row : registry.rows()) {
    const Unavailability* why_not = row.availability.why_not();
    if (why_not != nullptr && why_not->cause == Unavailability::Cause::kNotTried) why_not = nullptr;
    prometheus::ClientMetric& metric = family.metric.emplace_back();
    metric.label = {{"device_kind", DeviceKindName(row.implementation.device_kind)},
                    {"implementation", row.implementation.name},
                    {"kernel", registry.kernels()[static_cast<size_t>(row.kernel)].op->name},
                    {"reason", CauseName(why_not == nullptr ? Unavailability::Cause::kSelfTest
                                                            : why_not->cause)}};
    metric.gauge.value = why_not == nullptr ? 0 : 1;
  }
  families->push_back(std::move(family));
}

}  // namespace warpcall
