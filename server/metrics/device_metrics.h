// Families whose values are read when they are asked for.
#pragma once

#include <string>
#include <vector>

#include "absl/types/span.h"
#include "kernels/registry.h"
#include "prometheus/metric_family.h"
#include "server/engine/metrics_sink.h"
#include "server/metrics/prometheus_sink.h"

namespace warpcall {

// Every device has its series; one without a snapshot (there are fewer of them) shows 0.
void AppendDeviceFamilies(absl::Span<const DeviceLabel> devices,
                          absl::Span<const DeviceSnapshot> snapshots,
                          std::vector<prometheus::MetricFamily>* families);

// Shows devices that could not be opened as not healthy. REQUIRES: AppendDeviceFamilies before.
void AppendLeftOut(absl::Span<const std::string> devices,
                   std::vector<prometheus::MetricFamily>* families);

// Nothing where a build has no devices with errors.
void AppendDeviceErrors(absl::Span<const DeviceErrorCount> errors,
                        std::vector<prometheus::MetricFamily>* families);

// Which rows this machine can't run. Rows that are not tried yet count as those that run.
void AppendRowsUnavailable(const Registry& registry,
                           std::vector<prometheus::MetricFamily>* families);

// warpcall_traced_requests_total, by what became of their spans.
void AppendSpanFamily(const tracing::Counts& counts,
                      std::vector<prometheus::MetricFamily>* families);

void AppendBuildInfo(const BuildInfo& build, std::vector<prometheus::MetricFamily>* families);

}  // namespace warpcall
