#include "client/cli/load/report.h"

#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cli/common/table.h"

namespace warpcall::cli {
namespace {

using nlohmann::json;

// Breaks a sentence into lines that fit the screen.
std::string Sentence(absl::string_view text) { return Fitted("", text, /*indent=*/2); }

std::string Time(const LatencyHistogram& times, double fraction) {
  return times.Count() == 0 ? "-" : HumanTime(static_cast<double>(times.Percentile(fraction)));
}

// For a sentence.
std::string Spread(const LatencyHistogram& times) {
  return absl::StrCat(Time(times, 0.5), " (p50), ", Time(times, 0.99), " (p99), ", Time(times, 1),
                      " (max)");
}

// A row of the report: each entry, and all entries together if there are several.
struct Group {
  std::string name;
  const LoadStats& stats;
};

std::vector<Group> Groups(const LoadReport& report) {
  std::vector<Group> groups;
  if (report.entries.size() > 1) groups.push_back({"all", report.result.all});
  for (size_t i = 0; i < report.entries.size(); ++i)
    groups.push_back({EntryName(report.entries[i].entry), report.result.entries[i]});
  return groups;
}

std::string Heading(const LoadReport& report) {
  const LoadOptions& options = report.options;
  const std::string loop =
      options.rate_per_second > 0
          ? absl::StrCat("open loop, ", options.rate_per_second, " requests/s (",
                         options.arrivals == Arrivals::kPoisson ? "poisson" : "uniform", ", seed ",
                         options.seed, ") by up to ", options.workers, " workers")
          : absl::StrCat("closed loop, ", options.workers,
                         options.workers == 1 ? " worker" : " workers");
  const std::string connections =
      options.connections > 1 ? absl::StrCat(" with ", options.connections, " connections each")
                              : "";
  return absl::StrCat(
      Sentence(absl::StrCat(options.server, ": ", loop, connections)),
      Sentence(absl::StrCat(report.result.all.Sent(), " requests in ",
                            HumanTime(static_cast<double>(report.result.elapsed_ns)), ", after ",
                            report.result.warmup_requests, " to warm up")));
}

std::string Latencies(const LoadReport& report) {
  Table table(
      {"ENTRY", ">OK", ">OK/s", ">IN", ">OUT", ">MEAN", ">P50", ">P90", ">P99", ">P99.9", ">MAX"});
  const double seconds = static_cast<double>(report.result.elapsed_ns) * 1e-9;
  const auto rate = [&](int64_t amount, const char* unit) {
    return HumanRate(seconds > 0 ? static_cast<double>(amount) / seconds : 0, unit);
  };
  for (const Group& group : Groups(report)) {
    const LatencyHistogram& times = group.stats.latency();
    std::vector<std::string> row = {group.name,
                                    absl::StrCat(times.Count()),
                                    rate(times.Count(), "/s"),
                                    rate(group.stats.input_bytes(), "B/s"),
                                    rate(group.stats.output_bytes(), "B/s"),
                                    times.Count() == 0 ? "-" : HumanTime(times.Mean())};
    for (const double fraction : {0.5, 0.9, 0.99, 0.999, 1.0}) row.push_back(Time(times, fraction));
    table.AddRow(std::move(row));
  }
  return table.ToString();
}

std::string Phases(const LoadReport& report) {
  Table table({"SERVER'S TIMES", "", ">QUEUE", ">COPY IN", ">H2D", ">KERNEL", ">D2H", ">TOTAL"});
  for (const Group& group : Groups(report)) {
    for (const auto& [name, fraction] : {std::pair("p50", 0.5), std::pair("p99", 0.99)}) {
      std::vector<std::string> row = {group.name, name};
      for (size_t i = 0; i < std::size(kLoadPhases); ++i)
        row.push_back(Time(group.stats.phase(i), fraction));
      table.AddRow(std::move(row));
    }
  }
  return table.ToString();
}

// Empty when all requests were OK.
std::string Failures(const LoadStats& stats) {
  if (stats.Failed() == 0) return "";
  Table table({"STATUS", ">COUNT", "FIRST MESSAGE"});
  for (int i = 0; i < LoadStats::kCodeCount; ++i) {
    const auto code = static_cast<absl::StatusCode>(i);
    if (stats.Count(code) > 0)
      table.AddRow(
          {absl::StatusCodeToString(code), absl::StrCat(stats.Count(code)), stats.Message(code)});
  }
  return absl::StrCat(
      "\n", table.ToString(),
      Sentence(absl::StrCat(stats.Failed(), " failed, after ", Spread(stats.failed_latency()))));
}

// Reports how far the requests sent differ from the plan.
std::string Lateness(const LoadReport& report) {
  if (report.options.rate_per_second <= 0) return "";
  const LoadResult& result = report.result;
  std::string text = absl::StrCat("\n", Sentence(absl::StrCat("sent after the planned time by ",
                                                              Spread(result.all.lateness()))));
  const int64_t planned = result.all.Sent() + result.unsent;
  if (result.late == 0 && result.unsent == 0) return text;
  const double percent = 100 / static_cast<double>(planned);
  absl::StrAppend(
      &text,
      Sentence(absl::StrFormat(
          "COULD NOT KEEP UP: of %d planned requests %d (%.2f %%) were sent late and %d (%.2f %%) "
          "not at all, because all %d workers (--concurrency) were busy%s.",
          planned, result.late, percent * static_cast<double>(result.late), result.unsent,
          percent * static_cast<double>(result.unsent), report.options.workers,
          result.pauses > 0 ? ", or paused after refusals" : "")));
  if (result.unsent > 0)
    absl::StrAppend(&text,
                    Sentence("Latencies are those of what was sent; the rest would be higher."));
  return text;
}

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

json GroupJson(const LoadStats& stats, int64_t elapsed_ns) {
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
  json value = GroupJson(stats, elapsed_ns);
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

std::string ToText(const LoadReport& report) {
  const LoadResult& result = report.result;
  std::string text = absl::StrCat(Heading(report), "\n", Latencies(report), "\n", Phases(report),
                                  Failures(result.all), Lateness(report));
  if (result.all.retries() > 0)
    absl::StrAppend(&text, "\n", result.all.retries(), " retries of requests that were OK\n");
  if (result.pauses > 0)
    absl::StrAppend(
        &text, "\n",
        Sentence(absl::StrCat(result.pauses, result.pauses == 1 ? " pause" : " pauses",
                              " after refusals, ", HumanTime(static_cast<double>(result.paused_ns)),
                              " of all workers together")));
  if (result.warmup_failed > 0)
    absl::StrAppend(&text, "\n", result.warmup_failed, " requests failed during the warm-up\n");
  if (report.interrupted) absl::StrAppend(&text, "\ninterrupted\n");
  return text;
}

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
          {"all", GroupJson(result.all, result.elapsed_ns)},
          {"entries", std::move(entries)}};
}

}  // namespace warpcall::cli
