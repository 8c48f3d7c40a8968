#include "server/metrics/device_metrics.h"

#include <cstddef>
#include <string>
#include <utility>

#include "absl/algorithm/container.h"
#include "proto/common/check.h"

namespace warpcall {
namespace {

using prometheus::MetricType;

constexpr char kDeviceHealthy[] = "warpcall_device_healthy";

// One value of every device: `state` is a second label where it is not null.
struct Gauge {
  const char* name;
  const char* help;
  MetricType type;
  const char* state;
  double (*value)(const DeviceSnapshot&);
};

// Gauges of one name stand next to each other.
constexpr Gauge kGauges[] = {
    {"warpcall_queue_depth", "Requests admitted and not yet started.", MetricType::Gauge, nullptr,
     [](const DeviceSnapshot& s) { return static_cast<double>(s.queue_depth); }},
    {"warpcall_queue_bytes", "Tensor bytes of the requests that wait.", MetricType::Gauge, nullptr,
     [](const DeviceSnapshot& s) { return static_cast<double>(s.queue_bytes); }},
    {"warpcall_queue_work_seconds",
     "Predicted work of the requests that wait, in seconds of one lane.", MetricType::Gauge,
     nullptr, [](const DeviceSnapshot& s) { return s.queue_work_seconds; }},
    {"warpcall_queue_oldest_age_seconds", "Waiting time of the oldest waiting request.",
     MetricType::Gauge, nullptr,
     [](const DeviceSnapshot& s) { return s.queue_oldest_age_seconds; }},
    {"warpcall_staging_bytes", "Host memory for tensors on their way.", MetricType::Gauge, "total",
     [](const DeviceSnapshot& s) { return static_cast<double>(s.staging_total_bytes); }},
    {"warpcall_staging_bytes", "", MetricType::Gauge, "used",
     [](const DeviceSnapshot& s) { return static_cast<double>(s.staging_used_bytes); }},
    {"warpcall_device_memory_bytes", "Memory of the device.", MetricType::Gauge, "total",
     [](const DeviceSnapshot& s) { return static_cast<double>(s.memory_total_bytes); }},
    {"warpcall_device_memory_bytes", "", MetricType::Gauge, "used",
     [](const DeviceSnapshot& s) { return static_cast<double>(s.memory_used_bytes); }},
    {"warpcall_device_memory_bytes", "", MetricType::Gauge, "reserved",
     [](const DeviceSnapshot& s) { return static_cast<double>(s.memory_reserved_bytes); }},
    {kDeviceHealthy,
     "1 while the device works; 0 while its worker restarts, once it was lost, and if it could not "
     "be opened.",
     MetricType::Gauge, nullptr, [](const DeviceSnapshot& s) { return s.healthy ? 1.0 : 0.0; }},
    {"warpcall_worker_restarts_total", "Restarts of the process that serves the device.",
     MetricType::Counter, nullptr,
     [](const DeviceSnapshot& s) { return static_cast<double>(s.restarts); }},
    {"warpcall_device_busy_seconds_total",
     "Time in which at least one kernel or copy of a lane was running.", MetricType::Counter,
     nullptr, [](const DeviceSnapshot& s) { return s.busy_seconds; }},
    {"warpcall_device_bandwidth_ceiling_bytes_per_second",
     "Memory bandwidth of a copy as measured on the device; 0 until measured.", MetricType::Gauge,
     nullptr, [](const DeviceSnapshot& s) { return s.bandwidth_ceiling.bytes_per_second; }},
    {"warpcall_device_bandwidth_ceiling_noise_ratio",
     "Relative gap between the two best readings of that bandwidth; 1 until there are two.",
     MetricType::Gauge, nullptr, [](const DeviceSnapshot& s) { return s.bandwidth_ceiling.noise; }},
    {"warpcall_resident_bytes", "Memory of tensors that stay on the device between requests.",
     MetricType::Gauge, "total",
     [](const DeviceSnapshot& s) { return static_cast<double>(s.resident_total_bytes); }},
    {"warpcall_resident_bytes", "", MetricType::Gauge, "used",
     [](const DeviceSnapshot& s) { return static_cast<double>(s.resident_used_bytes); }},
    {"warpcall_resident_tensors", "Tensors that stay on the device between requests.",
     MetricType::Gauge, nullptr,
     [](const DeviceSnapshot& s) { return static_cast<double>(s.resident_tensors); }},
};

void AppendResidentsEnded(absl::Span<const DeviceLabel> devices,
                          absl::Span<const DeviceSnapshot> snapshots,
                          std::vector<prometheus::MetricFamily>* families) {
  families->push_back({"warpcall_resident_ended_total",
                       "Tensors that stayed on the device, by why they ended.",
                       MetricType::Counter,
                       {}});
  for (size_t device = 0; device < devices.size(); ++device) {
    for (int why = 0; why < kResidentEndCount; ++why) {
      prometheus::ClientMetric& metric = families->back().metric.emplace_back();
      metric.label = {{"device", devices[device].name},
                      {"why", ResidentEndName(static_cast<ResidentEnd>(why))}};
      if (device < snapshots.size())
        metric.counter.value =
            static_cast<double>(snapshots[device].residents_ended[static_cast<size_t>(why)]);
    }
  }
}

}  // namespace

void AppendDeviceFamilies(absl::Span<const DeviceLabel> devices,
                          absl::Span<const DeviceSnapshot> snapshots,
                          std::vector<prometheus::MetricFamily>* families) {
  for (const Gauge& gauge : kGauges) {
    if (families->empty() || families->back().name != gauge.name) {
      families->push_back({gauge.name, gauge.help, gauge.type, {}});
    }
    for (size_t device = 0; device < devices.size(); ++device) {
      prometheus::ClientMetric& metric = families->back().metric.emplace_back();
      metric.label.push_back({"device", devices[device].name});
      if (gauge.state != nullptr) metric.label.push_back({"state", gauge.state});
      const double value =
          gauge.value(device < snapshots.size() ? snapshots[device] : DeviceSnapshot());
      if (gauge.type == MetricType::Counter) {
        metric.counter.value = value;
      } else {
        metric.gauge.value = value;
      }
    }
  }
  AppendResidentsEnded(devices, snapshots, families);
}

void AppendLeftOut(absl::Span<const std::string> devices,
                   std::vector<prometheus::MetricFamily>* families) {
  const auto healthy = absl::c_find_if(*families, [](const prometheus::MetricFamily& family) {
    return family.name == kDeviceHealthy;
  });
  WARPCALL_CHECK(healthy != families->end());
  for (const std::string& device : devices) {
    prometheus::ClientMetric& metric = healthy->metric.emplace_back();
    metric.label = {{"device", device}};
    metric.gauge.value = 0;
  }
}

void AppendDeviceErrors(absl::Span<const DeviceErrorCount> errors,
                        std::vector<prometheus::MetricFamily>* families) {
  if (errors.empty()) return;
  families->push_back(
      {"warpcall_cuda_errors_total", "Errors that CUDA reported.", MetricType::Counter, {}});
  for (const DeviceErrorCount& error : errors) {
    prometheus::ClientMetric& metric = families->back().metric.emplace_back();
    metric.label = {{"code", error.code}};
    metric.counter.value = static_cast<double>(error.count);
  }
}

void AppendRowsUnavailable(const Registry& registry,
                           std::vector<prometheus::MetricFamily>* families) {
  prometheus::MetricFamily family = {"warpcall_rows_unavailable",
                                     "1 for a variant that this machine can't run, 0 for others.",
                                     prometheus::MetricType::Gauge,
                                     {}};
  for (const Row& row : registry.rows()) {
    const Unavailability* why_not = row.availability.why_not();
    if (why_not != nullptr && why_not->cause == Unavailability::Cause::kNotTried) why_not = nullptr;
    prometheus::ClientMetric& metric = family.metric.emplace_back();
    metric.label = {{"device_kind", DeviceKindName(row.implementation.device_kind)},
                    {"implementation", FamilyName(row.implementation.family)},
                    {"kernel", registry.kernels()[static_cast<size_t>(row.kernel)].op->name},
                    {"reason", CauseName(why_not == nullptr ? Unavailability::Cause::kSelfTest
                                                            : why_not->cause)},
                    {"variant", row.implementation.name}};
    metric.gauge.value = why_not == nullptr ? 0 : 1;
  }
  families->push_back(std::move(family));
}

void AppendSpanFamily(const tracing::Counts& counts,
                      std::vector<prometheus::MetricFamily>* families) {
  families->push_back({"warpcall_traced_requests_total",
                       "Requests, and windows of streams, by the fate of their spans.",
                       MetricType::Counter,
                       {}});
  for (const auto& [result, count] :
       {std::pair("sent", counts.sent), std::pair("dropped", counts.dropped),
        std::pair("failed", counts.failed)}) {
    prometheus::ClientMetric& metric = families->back().metric.emplace_back();
    metric.label = {{"result", result}};
    metric.counter.value = static_cast<double>(count);
  }
}

void AppendBuildInfo(const BuildInfo& build, std::vector<prometheus::MetricFamily>* families) {
  prometheus::MetricFamily& family = families->emplace_back();
  family.name = "warpcall_build_info";
  family.help = "Version and toolchain of this server's build; always 1.";
  family.type = MetricType::Gauge;
  prometheus::ClientMetric& metric = family.metric.emplace_back();
  metric.label = {{"version", build.version}, {"compiler", build.compiler}, {"cuda", build.cuda}};
  metric.gauge.value = 1;
}

}  // namespace warpcall
