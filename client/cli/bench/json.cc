#include <nlohmann/json.hpp>
#include <utility>

#include "client/cli/bench/report.h"
#include "client/cli/common/output.h"
#include "client/cli/common/version.h"

namespace warpcall::cli {
namespace {

using nlohmann::json;

json OrNull(int64_t value) { return value > 0 ? json(value) : json(); }
json OrNull(double value) { return value > 0 ? json(value) : json(); }
json OrNull(const std::string& text) { return text.empty() ? json() : json(text); }

json ToJson(const BenchPoint& point, const client::BenchmarkResult& result) {
  return {{"implementation", result.implementation},
          {"family", result.family},
          {"mean_ns", result.mean_ns},
          {"median_ns", result.median_ns},
          {"min_ns", result.min_ns},
          {"p10_ns", result.p10_ns},
          {"p90_ns", result.p90_ns},
          {"median_low_ns", result.median_low_ns},
          {"median_high_ns", result.median_high_ns},
          {"noise", result.noise},
          {"unstable", result.unstable},
          {"verdict", result.verdict},
          {"predicted_ns", result.predicted_ns},
          {"bytes_per_second", result.bytes_per_second},
          {"flops_per_second", result.flops_per_second},
          {"fraction_of_ceiling", result.fraction_of_ceiling},
          {"relative_error", result.relative_error},
          {"max_error", result.max_error},
          {"checked_elements", result.checked_elements},
          {"iterations", result.iterations},
          {"launches_per_iteration", result.launches_per_iteration},
          {"launch", cli::ToJson(result.launch)},
          {"error", result.error},
          {"notes", Notes(point, result)}};
}

json ToJson(const client::RunStamp& stamp) {
  if (stamp.started_unix_ns == 0) return {};
  return {{"device_description", stamp.device_description},
          {"driver", stamp.driver},
          {"cuda", stamp.cuda},
          {"server_version", stamp.server_version},
          {"seed", stamp.seed},
          {"sm_clock_mhz_min", stamp.sm_clock_mhz_min},
          {"sm_clock_mhz_max", stamp.sm_clock_mhz_max},
          {"memory_clock_mhz", stamp.memory_clock_mhz},
          {"temperature_celsius", stamp.temperature_celsius},
          {"power_watts", stamp.power_watts},
          {"throttle_reasons", stamp.throttle_reasons},
          {"samples_dropped", stamp.samples_dropped},
          {"started_unix_ns", stamp.started_unix_ns}};
}

json ToJson(const BenchReport& report, const BenchPoint& point) {
  json inputs = json::array();
  for (const client::TensorSpec& input : point.call.inputs)
    inputs.push_back({{"data_type", DataTypeName(input.data_type)}, {"shape", input.shape}});
  const auto kind = report.server.device_kinds.find(point.device());
  json value = {
      {"shape", point.shape},
      {"data_type", DataTypeName(point.data_type)},
      {"inputs", std::move(inputs)},
      {"device", point.device()},
      {"device_kind", kind == report.server.device_kinds.end() ? json() : json(kind->second)},
      {"error", nullptr},
      {"ceiling_bytes_per_second", OrNull(point.report.ceiling_bytes_per_second)},
      {"flops_ceiling", OrNull(point.report.flops_ceiling)},
      {"stamp", ToJson(point.report.stamp)},
      {"results", json::array()}};
  if (!point.status.ok())
    value["error"] = {{"code", absl::StatusCodeToString(point.status.code())},
                      {"message", std::string(point.status.message())}};
  if (report.tunes)
    value["auto"] = point.served.empty() ? json()
                                         : json{{"implementation", point.served},
                                                {"chosen_because", point.served_because}};
  for (const client::BenchmarkResult& result : point.report.results)
    value["results"].push_back(ToJson(point, result));
  return value;
}

}  // namespace

json ToJson(const BenchReport& report) {
  json attributes = json::object();
  for (const auto& [name, value] : report.attributes) attributes[name] = ToJson(value);
  json points = json::array();
  for (const BenchPoint& point : report.points) points.push_back(ToJson(report, point));
  const client::BenchmarkCall& call = report.points[0].call;
  return {{"kernel", report.kernel},
          {"attributes", std::move(attributes)},
          {"iterations", OrNull(int64_t{call.iterations})},
          {"warmup_iterations", OrNull(int64_t{call.warmup_iterations})},
          {"seed", call.seed},
          {"max_noise", OrNull(call.max_noise)},
          {"timeout_ns", OrNull(absl::ToInt64Nanoseconds(call.row_timeout))},
          {"client_version", ClientVersion()},
          {"server",
           {{"address", report.server.address},
            {"host", OrNull(report.server.host)},
            {"version", OrNull(report.server.version)}}},
          {"points", std::move(points)}};
}

}  // namespace warpcall::cli
