#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/multiply_adds.h"
#include "server/metrics/server_status.h"

namespace warpcall {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kNsPerSecond = 1e9;

void AddQuantiles(const char* before, const DurationCounts& durations, Json* object) {
  for (const auto& [name, q] : {std::pair("p50", 0.5), std::pair("p99", 0.99)}) {
    const std::optional<Quantile> quantile = QuantileOf(durations, q);
    const std::string key = absl::StrCat(before, name);
    (*object)[key + "_seconds"] = quantile.has_value() ? Json(quantile->seconds) : Json();
    (*object)[key + "_is_lower_bound"] = quantile.has_value() && quantile->is_lower_bound;
  }
}

Json ToJson(const TrafficCounts& counts, double window_seconds) {
  const auto per_second = [&](uint64_t count) {
    return window_seconds > 0 ? static_cast<double>(count) / window_seconds : 0.0;
  };
  const uint64_t requests = CountOf(counts.answered);
  Json traffic = {{"requests", requests},
                  {"failed", counts.failed},
                  {"requests_per_second", per_second(requests)},
                  {"failed_per_second", per_second(counts.failed)}};
  AddQuantiles("", counts.answered, &traffic);
  AddQuantiles("queue_", counts.waited, &traffic);
  return traffic;
}

// Null for what was not measured.
Json Measured(double value) { return value > 0 ? Json(value) : Json(); }

Json ToJson(const DeviceStatus& device) {
  const DeviceSnapshot& snapshot = device.snapshot;
  Json multiply_adds = Json::object();
  for (int i = 0; i < kArithmeticCount; ++i)
    multiply_adds[ArithmeticName(static_cast<Arithmetic>(i))] =
        Measured(snapshot.multiply_add_ceilings[static_cast<size_t>(i)]);
  return {{"name", CutText(device.name)},
          {"open", device.is_open},
          {"healthy", device.is_open && snapshot.healthy},
          {"restarts", snapshot.restarts},
          {"busy_seconds", snapshot.busy_seconds},
          {"memory_used_bytes", snapshot.memory_used_bytes},
          {"memory_reserved_bytes", snapshot.memory_reserved_bytes},
          {"memory_total_bytes", snapshot.memory_total_bytes},
          {"copy_bytes_per_second", Measured(snapshot.bandwidth_ceiling.bytes_per_second)},
          {"multiply_adds_flops_per_second", std::move(multiply_adds)},
          {"queue_depth", snapshot.queue_depth},
          {"queue_oldest_seconds", snapshot.queue_oldest_age_seconds},
          {"queue_work_seconds", snapshot.queue_work_seconds},
          {"resident_tensors", snapshot.resident_tensors},
          {"resident_used_bytes", snapshot.resident_used_bytes},
          {"resident_total_bytes", snapshot.resident_total_bytes}};
}

Json ToJson(const KernelStatus& kernel, double window_seconds) {
  const AutoStatus& choice = kernel.auto_choice;
  return {{"name", CutText(kernel.name)},
          {"auto_implementation", CutText(choice.implementation)},
          {"auto_implementation_requests", choice.requests},
          {"auto_requests", choice.of},
          {"requests", kernel.requests},
          {"last_minute", ToJson(kernel.last_minute, window_seconds)}};
}

Json ToJson(const RecentInspection& inspection) {
  return {{"unix_seconds", static_cast<double>(inspection.unix_ns) / kNsPerSecond},
          {"method", CutText(inspection.method)},
          {"kernel", CutText(inspection.kernel)},
          {"device", CutText(inspection.device)},
          {"push", CutText(inspection.push)},
          {"principal", CutText(inspection.principal)},
          {"outcome", CutText(inspection.outcome)},
          {"seconds", inspection.seconds}};
}

}  // namespace

std::string StatusJson(const ServerStatus& status) {
  Json devices = Json::array(), kernels = Json::array(), inspections = Json::array();
  for (size_t i = 0; i < std::min(status.devices.size(), kStatusDevicesMax); ++i)
    devices.push_back(ToJson(status.devices[i]));
  for (size_t i = 0; i < std::min(status.kernels.size(), kStatusKernelsMax); ++i)
    kernels.push_back(ToJson(status.kernels[i], status.window_seconds));
  for (size_t i = 0; i < std::min(status.inspections.size(), kStatusInspectionsMax); ++i)
    inspections.push_back(ToJson(status.inspections[i]));
  const Json json = {{"version", CutText(status.build.version)},
                     {"hostname", CutText(status.hostname)},
                     {"compiler", CutText(status.build.compiler)},
                     {"cuda", CutText(status.build.cuda)},
                     {"phase", ServerPhaseName(status.phase)},
                     {"ready", status.is_ready},
                     {"readiness", CutText(status.readiness, kStatusReadinessBytesMax)},
                     {"uptime_seconds", status.uptime_seconds},
                     {"unix_seconds", static_cast<double>(status.unix_ns) / kNsPerSecond},
                     {"window_seconds", status.window_seconds},
                     {"last_minute", ToJson(TotalOf(status), status.window_seconds)},
                     {"devices", devices},
                     {"devices_left_out", status.devices.size() - devices.size()},
                     {"kernels", kernels},
                     {"kernels_left_out", status.kernels.size() - kernels.size()},
                     {"inspections", inspections}};
  return json.dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace) + "\n";
}

}  // namespace warpcall
