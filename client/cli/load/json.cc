#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "client/cli/load/report.h"

namespace warpcall::cli {
namespace {

using nlohmann::json;

json Distribution(const LatencyHistogram& times) {
  return {{"count", times.Count()},
          {"mean_ns", std::llround(times.Mean())},
          {"p50_ns", times.Percentile(0.5)},
          {"p90_ns", times.Percentile(0.9)},
          {"p99_ns", times.Percentile(0.99)},
          {"p999_ns", times.Percentile(0.999)},
          {"max_ns", times.Max()}};
}

json Statuses(const LoadStats& stats) {
  json statuses = json::object();
  for (int i = 0; i < LoadStats::kCodeCount; ++i) {
    const auto code = static_cast<absl::StatusCode>(i);
    if (stats.Count(code) == 0) continue;
    json& status = statuses[absl::StatusCodeToString(code)];
    status["count"] = stats.Count(code);
    if (code != absl::StatusCode::kOk) status["message"] = stats.Message(code);
  }
  return statuses;
}

json Group(const LoadStats& stats, int64_t elapsed_ns) {
  const double per_second = elapsed_ns > 0 ? 1e9 / static_cast<double>(elapsed_ns) : 0;
  const int64_t ok = stats.Count(absl::StatusCode::kOk);
  json phases = json::object();
  for (size_t i = 0; i < std::size(kLoadPhases); ++i)
    phases[kLoadPhases[i].name] = Distribution(stats.phase(i));
  return {{"sent", stats.Sent()},
          {"ok", ok},
          {"failed", stats.Failed()},
          {"statuses", Statuses(stats)},
          {"requests_per_second", static_cast<double>(ok) * per_second},
          {"input_bytes", stats.input_bytes()},
          {"output_bytes", stats.output_bytes()},
          {"input_bytes_per_second", static_cast<double>(stats.input_bytes()) * per_second},
          {"output_bytes_per_second", static_cast<double>(stats.output_bytes()) * per_second},
          {"retries", stats.retries()},
          {"latency", Distribution(stats.latency())},
          {"failed_latency", Distribution(stats.failed_latency())},
          {"phases", std::move(phases)}};
}

json Request(const LoadReport& report) {
  const LoadOptions& options = report.options;
  const bool open = options.rate_per_second > 0;
  const bool poisson = options.arrivals == Arrivals::kPoisson;
  return {{"server", options.server},
          {"mode", open ? "open" : "closed"},
          {"rate_per_second", open ? json(options.rate_per_second) : json()},
          {"arrivals", open ? json(poisson ? "poisson" : "uniform") : json()},
          {"seed", options.seed},
          {"concurrency", options.workers},
          {"connections", options.connections},
          {"warmup_ns", options.warmup_ns},
          {"duration_ns", options.requests > 0 ? json() : json(options.duration_ns)},
          {"requests", options.requests > 0 ? json(options.requests) : json()},
          {"deadline_ns", absl::ToInt64Nanoseconds(options.client.timeout)},
          {"retry", options.client.retry.attempts_max > 1},
          {"check", options.check}};
}

json Entry(const LoadEntry& entry, const LoadStats& stats, int64_t elapsed_ns) {
  json value = Group(stats, elapsed_ns);
  value["name"] = EntryName(entry);
  value["kernel"] = entry.kernel;
  value["implementation"] = entry.implementation;
  value["device"] = entry.device;
  value["attributes"] = entry.attributes;
  value["shapes"] = entry.shapes;
  value["data_type"] = DataTypeName(entry.data_type);
  value["weight"] = entry.weight;
  return value;
}

}  // namespace

json ToJson(const LoadReport& report) {
  const LoadResult& result = report.result;
  const bool open = report.options.rate_per_second > 0;
  json entries = json::array();
  for (size_t i = 0; i < report.entries.size(); ++i)
    entries.push_back(Entry(report.entries[i].entry, result.entries[i], result.elapsed_ns));
  return {{"request", Request(report)},
          {"interrupted", report.interrupted},
          {"elapsed_ns", result.elapsed_ns},
          {"warmup", {{"requests", result.warmup_requests}, {"failed", result.warmup_failed}}},
          {"planned", open ? json(result.all.Sent() + result.unsent) : json()},
          {"unsent", result.unsent},
          {"late", result.late},
          {"kept_up", result.unsent == 0 && result.late == 0},
          {"backoff", {{"pauses", result.pauses}, {"total_ns", result.paused_ns}}},
          {"lateness", open ? Distribution(result.all.lateness()) : json()},
          {"all", Group(result.all, result.elapsed_ns)},
          {"entries", std::move(entries)}};
}

}  // namespace warpcall::cli
