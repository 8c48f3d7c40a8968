#include "server/metrics/gpu_metrics.h"

#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace warpcall {
namespace {

using prometheus::MetricType;

struct GpuGauge {
  const char* name;
  const char* help;
  std::optional<double> GpuReading::*value;
};

constexpr GpuGauge kGpuGauges[] = {
    {"warpcall_gpu_sm_active_ratio", "Share of time in which a multiprocessor had work, averaged.",
     &GpuReading::sm_active_ratio},
    {"warpcall_gpu_sm_occupancy_ratio", "Resident warps to the most that fit, averaged.",
     &GpuReading::sm_occupancy_ratio},
    {"warpcall_gpu_dram_bandwidth_ratio", "Memory traffic to the most that the memory can do.",
     &GpuReading::dram_bandwidth_ratio},
    {"warpcall_gpu_tensor_active_ratio", "Share of time in which the tensor cores had work.",
     &GpuReading::tensor_active_ratio},
    {"warpcall_gpu_power_watts", "Power that the GPU draws.", &GpuReading::power_watts},
    {"warpcall_gpu_temperature_celsius", "Temperature of the GPU.",
     &GpuReading::temperature_celsius},
    {"warpcall_gpu_sm_clock_mhz", "Clock of the multiprocessors.", &GpuReading::sm_clock_mhz},
};

prometheus::MetricFamily ThrottledFamily(absl::Span<const GpuReading> readings) {
  prometheus::MetricFamily family = {"warpcall_gpu_throttled",
                                     "1 while the GPU's clocks are lowered for this reason.",
                                     MetricType::Gauge,
                                     {}};
  for (const GpuReading& reading : readings) {
    for (const auto& [reason, is_throttled] : reading.throttled) {
      prometheus::ClientMetric& metric = family.metric.emplace_back();
      metric.label = {{"device", reading.device}, {"reason", reason}};
      metric.gauge.value = is_throttled ? 1 : 0;
    }
  }
  return family;
}

void AppendIfAny(prometheus::MetricFamily family, std::vector<prometheus::MetricFamily>* families) {
  if (!family.metric.empty()) families->push_back(std::move(family));
}

}  // namespace

void AppendGpuFamilies(absl::Span<const GpuReading> readings,
                       std::vector<prometheus::MetricFamily>* families) {
  for (const GpuGauge& gauge : kGpuGauges) {
    prometheus::MetricFamily family = {gauge.name, gauge.help, MetricType::Gauge, {}};
    for (const GpuReading& reading : readings) {
      const std::optional<double>& value = reading.*gauge.value;
      if (!value.has_value()) continue;
      prometheus::ClientMetric& metric = family.metric.emplace_back();
      metric.label = {{"device", reading.device}};
      metric.gauge.value = *value;
    }
    AppendIfAny(std::move(family), families);
  }
  AppendIfAny(ThrottledFamily(readings), families);
  // The label is written as DCGM's exporter writes it, so that series can be joined by it.
  prometheus::MetricFamily info = {"warpcall_gpu_info",
                                   "The GPU's UUID, by which DCGM's exporter names it; always 1.",
                                   MetricType::Gauge,
                                   {}};
  for (const GpuReading& reading : readings) {
    if (reading.uuid.empty()) continue;
    prometheus::ClientMetric& metric = info.metric.emplace_back();
    metric.label = {{"device", reading.device}, {"UUID", reading.uuid}};
    metric.gauge.value = 1;
  }
  AppendIfAny(std::move(info), families);
  prometheus::MetricFamily errors = {"warpcall_gpu_xid_errors_total",
                                     "Errors that the GPU's driver reported, by Xid.",
                                     MetricType::Counter,
                                     {}};
  for (const GpuReading& reading : readings) {
    for (const auto& [xid, count] : reading.xid_errors) {
      prometheus::ClientMetric& metric = errors.metric.emplace_back();
      metric.label = {{"device", reading.device}, {"xid", absl::StrCat(xid)}};
      metric.counter.value = static_cast<double>(count);
    }
  }
  AppendIfAny(std::move(errors), families);
}

}  // namespace warpcall
