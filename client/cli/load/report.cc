#include "client/cli/load/report.h"

#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cli/common/table.h"

namespace warpcall::cli {
namespace {

constexpr auto kRight = Table::Align::kRight;

// A sentence in lines that fit.
std::string Sentence(absl::string_view text) { return Fitted("", text, /*indent=*/2); }

std::string Time(const LatencyHistogram& times, double fraction) {
  return times.Count() == 0 ? "-" : HumanTime(static_cast<double>(times.Percentile(fraction)));
}

// For a sentence.
std::string Spread(const LatencyHistogram& times) {
  return absl::StrCat(Time(times, 0.5), " (p50), ", Time(times, 0.99), " (p99), ", Time(times, 1),
                      " (max)");
}

// What is in a row of its own: everything, where that is more than one entry, and each entry.
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
  Table table({{"ENTRY"},
               {"OK", kRight},
               {"OK/s", kRight},
               {"IN", kRight},
               {"OUT", kRight},
               {"MEAN", kRight},
               {"P50", kRight},
               {"P90", kRight},
               {"P99", kRight},
               {"P99.9", kRight},
               {"MAX", kRight}});
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
  Table table({{"SERVER'S TIMES"},
               {""},
               {"QUEUE", kRight},
               {"COPY IN", kRight},
               {"H2D", kRight},
               {"KERNEL", kRight},
               {"D2H", kRight},
               {"TOTAL", kRight}});
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
  Table table({{"STATUS"}, {"COUNT", kRight}, {"FIRST MESSAGE"}});
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

// Whether what was sent is what was planned.
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

}  // namespace warpcall::cli
