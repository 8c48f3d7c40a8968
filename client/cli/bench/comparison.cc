#include "client/cli/bench/comparison.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "client/cli/bench/measurements.h"
#include "client/cli/common/catalog.h"
#include "client/cli/common/command.h"
#include "client/cli/common/options.h"
#include "client/cli/common/output.h"
#include "client/cli/common/table.h"
#include "proto/common/pinned_name.h"
#include "proto/common/status_macros.h"

namespace warpcall::cli {
namespace {

using client::BenchmarkResult;
using nlohmann::json;

bool HasTime(const std::optional<MeasuredRow>& row) {
  return row.has_value() && row->result.error().empty() && std::isfinite(row->result.median_ns()) &&
         row->result.median_ns() > 0;
}

bool HasInterval(const BenchmarkResult& result) {
  return result.median_low_ns() > 0 && result.median_high_ns() >= result.median_low_ns();
}

std::string VerdictOfTimes(const BenchmarkResult& before, const BenchmarkResult& after) {
  if (before.unstable() || after.unstable()) return "unstable";
  if (!HasInterval(before) || !HasInterval(after)) return "no interval known";
  if (after.median_high_ns() < before.median_low_ns()) return "faster";
  if (after.median_low_ns() > before.median_high_ns()) return "slower";
  return "no difference seen";
}

std::string Verdict(const ComparedRow& row) {
  if (!row.before.has_value()) return "only after";
  if (!row.after.has_value()) return "only before";
  const bool before = HasTime(row.before), after = HasTime(row.after);
  if (before && after) return VerdictOfTimes(row.before->result, row.after->result);
  return before ? "no longer runs" : after ? "did not run before" : "did not run";
}

ComparedRow Compared(std::optional<MeasuredRow> before, std::optional<MeasuredRow> after) {
  ComparedRow row{.before = std::move(before), .after = std::move(after)};
  row.verdict = Verdict(row);
  if (!HasTime(row.before) || !HasTime(row.after)) return row;
  const BenchmarkResult& was = row.before->result;
  const BenchmarkResult& is = row.after->result;
  row.ratio = is.median_ns() / was.median_ns();
  if (!HasInterval(was) || !HasInterval(is)) return row;
  row.ratio_low = is.median_low_ns() / was.median_high_ns();
  row.ratio_high = is.median_high_ns() / was.median_low_ns();
  return row;
}

// True when rows need device names to be told apart.
bool SeveralDevices(const Measurements& before, const Measurements& after) {
  return before.devices.size() > 1 || after.devices.size() > 1;
}

std::vector<ComparedRow> CompareRows(const Measurements& before, const Measurements& after) {
  const bool several = SeveralDevices(before, after);
  const auto are_one = [several](const MeasuredRow& a, const MeasuredRow& b) {
    return a.shape == b.shape && a.data_type == b.data_type &&
           PinnedName(a.result) == PinnedName(b.result) &&
           (!several || a.device == b.device || a.device.empty() || b.device.empty());
  };
  std::vector<bool> taken(before.rows.size(), false);
  std::vector<ComparedRow> rows;
  for (const MeasuredRow& row : after.rows) {
    size_t i = 0;
    while (i < before.rows.size() && (taken[i] || !are_one(before.rows[i], row))) ++i;
    if (i < before.rows.size()) {
      taken[i] = true;
      rows.push_back(Compared(before.rows[i], row));
    } else {
      rows.push_back(Compared(std::nullopt, row));
    }
  }
  for (size_t i = 0; i < before.rows.size(); ++i)
    if (!taken[i]) rows.push_back(Compared(before.rows[i], std::nullopt));
  return rows;
}

// Clocks closer than this count as equal: a GPU sets them in steps of 15 MHz, by temperature.
constexpr double kClockTolerance = 0.03;

bool ClocksDiffer(int64_t a, int64_t b) {
  if (a <= 0 || b <= 0) return false;
  const auto apart = static_cast<double>(std::max(a, b) - std::min(a, b));
  return apart > kClockTolerance * static_cast<double>(std::max(a, b));
}

std::string Megahertz(int64_t low, int64_t high) {
  if (high <= 0) return "";
  return low > 0 && low != high ? absl::StrCat(low, "-", high, " MHz") : absl::StrCat(high, " MHz");
}

std::string Date(int64_t unix_ns) {
  if (unix_ns <= 0) return "";
  return absl::FormatTime("%Y-%m-%d %H:%M:%S UTC", absl::FromUnixNanos(unix_ns),
                          absl::UTCTimeZone());
}

class Lines {
 public:
  // The line differs if both values are known and unequal.
  void Add(absl::string_view name, const std::string& before, const std::string& after) {
    Add(name, before, after, !before.empty() && !after.empty() && before != after);
  }
  void Add(absl::string_view name, const std::string& before, const std::string& after,
           bool differs) {
    if (before.empty() && after.empty()) return;
    lines_.push_back({std::string(name), before, after, differs});
  }
  std::vector<ConditionLine> Take() { return std::move(lines_); }

 private:
  std::vector<ConditionLine> lines_;
};

std::string Count(int64_t value) { return value > 0 ? absl::StrCat(value) : ""; }

// Lists the conditions that are known of either benchmark.
std::vector<ConditionLine> CompareConditions(const Conditions& before, const Conditions& after) {
  const client::RunStamp& was = before.stamp;
  const client::RunStamp& is = after.stamp;
  Lines lines;
  lines.Add("host", before.host, after.host);
  lines.Add("device", before.device, after.device);
  lines.Add("description", was.device_description(), is.device_description());
  lines.Add("driver", was.driver(), is.driver());
  lines.Add("CUDA", was.cuda(), is.cuda());
  lines.Add("server", was.server_version(), is.server_version());
  lines.Add("client", before.client_version, after.client_version);
  lines.Add("method", before.method, after.method);
  lines.Add("SM clock", Megahertz(was.sm_clock_mhz_min(), was.sm_clock_mhz_max()),
            Megahertz(is.sm_clock_mhz_min(), is.sm_clock_mhz_max()),
            ClocksDiffer(was.sm_clock_mhz_min(), is.sm_clock_mhz_min()) ||
                ClocksDiffer(was.sm_clock_mhz_max(), is.sm_clock_mhz_max()));
  lines.Add("memory clock", Megahertz(0, was.memory_clock_mhz()),
            Megahertz(0, is.memory_clock_mhz()),
            ClocksDiffer(was.memory_clock_mhz(), is.memory_clock_mhz()));
  const std::string reasons = absl::StrJoin(was.throttle_reasons(), ", ");
  const std::string reasons_now = absl::StrJoin(is.throttle_reasons(), ", ");
  lines.Add("throttled", reasons, reasons_now, reasons != reasons_now);
  lines.Add("samples dropped", Count(was.samples_dropped()), Count(is.samples_dropped()), false);
  lines.Add("started", Date(was.started_unix_ns()), Date(is.started_unix_ns()), false);
  return lines.Take();
}

std::vector<ComparedDevice> CompareDevices(const Measurements& before, const Measurements& after) {
  const bool several = SeveralDevices(before, after);
  std::vector<ComparedDevice> devices;
  for (const auto& [name, conditions] : after.devices) {
    const auto found = several ? before.devices.find(name) : before.devices.begin();
    if (found != before.devices.end())
      devices.push_back({name, CompareConditions(found->second, conditions)});
  }
  return devices;
}

// Says that some points were not measured completely; empty when all were.
std::string Lack(const Measurements& of) {
  if (of.unfinished.empty()) return "";
  return absl::StrCat(of.name, " is incomplete: ", of.unfinished.size(),
                      of.unfinished.size() == 1 ? " point was" : " points were",
                      " not measured to the end; the first is ", of.unfinished[0]);
}

// Warns of differing conditions, which change times without a change of programs, and of gaps.
std::vector<std::string> Warnings(const Measurements& before, const Measurements& after,
                                  const std::vector<ComparedDevice>& devices) {
  std::vector<std::string> warnings;
  for (const Measurements* of : {&before, &after})
    if (const std::string lack = Lack(*of); !lack.empty()) warnings.push_back(lack);
  if (before.attributes != after.attributes)
    warnings.push_back(absl::StrCat("the attributes differ: '", before.attributes, "' and '",
                                    after.attributes, "'"));
  for (const ComparedDevice& device : devices)
    for (const ConditionLine& line : device.conditions)
      if (line.differs)
        warnings.push_back(absl::StrCat(line.name,
                                        " differs: ", line.before.empty() ? "-" : line.before,
                                        " and ", line.after.empty() ? "-" : line.after));
  return warnings;
}

constexpr size_t kNameWidth = 22;
constexpr size_t kConditionWidth = 38;

std::string Time(const std::optional<MeasuredRow>& row) {
  return row.has_value() && row->result.error().empty() && row->result.median_ns() > 0
             ? HumanTime(row->result.median_ns())
             : "-";
}

// The interval in percent of the median, "-1.2 +0.8".
std::string Interval(const std::optional<MeasuredRow>& row) {
  if (!row.has_value() || !row->result.error().empty() || !(row->result.median_low_ns() > 0))
    return "-";
  const BenchmarkResult& result = row->result;
  return absl::StrFormat("-%.1f +%.1f", 100 * (1 - result.median_low_ns() / result.median_ns()),
                         100 * (result.median_high_ns() / result.median_ns() - 1));
}

Table RowTable() {
  return Table({"IMPLEMENTATION", ">BEFORE", ">95%", ">AFTER", ">95%", ">RATIO", "VERDICT"});
}

void AddRow(const ComparedRow& row, Table* table) {
  table->AddRow({CutMiddle(PinnedName(row.either().result), kNameWidth), Time(row.before),
                 Interval(row.before), Time(row.after), Interval(row.after),
                 row.ratio > 0 ? absl::StrFormat("%.3f", row.ratio) : "-", row.verdict});
}

std::string PlaceOf(const ComparedRow& row) {
  const MeasuredRow& either = row.either();
  return absl::StrCat(either.shape, " ", either.data_type,
                      either.device.empty() ? "" : absl::StrCat(" on ", either.device));
}

json ToJson(const std::optional<MeasuredRow>& row) {
  if (!row.has_value()) return nullptr;
  const BenchmarkResult& result = row->result;
  return {{"median_ns", result.median_ns()},
          {"median_low_ns", result.median_low_ns()},
          {"median_high_ns", result.median_high_ns()},
          {"iterations", result.iterations()},
          {"unstable", result.unstable()},
          {"error", result.error()}};
}

constexpr double kPercentMax = 1e6;
constexpr int kExitNotJudged = 3;

constexpr char kCompareFooter[] =
    R"(The files are the output of `warpcall bench ... --json`:
  warpcall bench softmax --shape 4096x1024 --json > before.json
  warpcall bench softmax --shape 4096x1024 --json > after.json
  warpcall compare before.json after.json --fail-above 5
RATIO is the second median divided by the first: below 1 is faster. The verdict
is "faster" or "slower" if the 95% intervals of the medians do not overlap, else
"no difference seen". The column 95% shows how far the interval reaches below
and above the median, in percent. The command contacts no server.
Exit status: 0 success; 2 usage error or not a benchmark file; with --fail-above
also 1 if a row is slower by more than that or no longer runs; 3 if none is, but
a row can't be judged: it is missing from the second file, or slower by more
than that but too noisy. Measure again then.)";

struct CompareOptions {
  explicit CompareOptions(const Arguments& arguments) {
    arguments.Add("before", &before, "Results of the first measurement")
        .Required()
        .TypeName("BEFORE.json");
    arguments.Add("after", &after, "Results of the second measurement")
        .Required()
        .TypeName("AFTER.json");
    arguments
        .Add("--fail-above", &fail_above,
             "Exit with status 1 if a row is slower by more than this or no longer runs, 3 if only "
             "noise hides that")
        .Between(0, kPercentMax)
        .TypeName("PERCENT");
    arguments.SetFooter(kCompareFooter);
  }

  static constexpr double kNever = -1;

  std::string before;
  std::string after;
  double fail_above = kNever;
};

absl::StatusOr<BenchComparison> CompareFiles(const CompareOptions& options) {
  ASSIGN_OR_RETURN(const Measurements before, ReadMeasurements(options.before));
  ASSIGN_OR_RETURN(const Measurements after, ReadMeasurements(options.after));
  return Compare(before, after);
}

// Reasons for --fail-above to fail; empty when it passes.
std::string Failures(const BenchComparison& comparison, double percent) {
  const auto rows = [](int count) {
    return absl::StrCat(count, count == 1 ? " row is" : " rows are");
  };
  std::vector<std::string> failures;
  if (const int slower = comparison.Regressions(percent); slower > 0)
    failures.push_back(
        absl::StrCat(rows(slower), " slower by more than ", percent, "%, or no longer run"));
  const BenchComparison::Unjudged unjudged = comparison.NotJudged(percent);
  if (unjudged.missing > 0)
    failures.push_back(absl::StrCat(rows(unjudged.missing), " missing in ", comparison.after_name,
                                    " and could not be judged"));
  if (unjudged.noisy > 0)
    failures.push_back(absl::StrCat(rows(unjudged.noisy), " slower by more than ", percent,
                                    "%, but too noisy to be judged"));
  return absl::StrJoin(failures, "; ");
}

int Run(const Globals& globals, const CompareOptions& options) {
  const absl::StatusOr<BenchComparison> comparison = CompareFiles(options);
  if (!comparison.ok()) return UsageError(comparison.status());
  if (globals.json) {
    PrintJson(ToJson(*comparison));
  } else {
    PrintText(ToText(*comparison));
  }
  if (options.fail_above == CompareOptions::kNever) return kExitOk;
  const std::string failures = Failures(*comparison, options.fail_above);
  if (failures.empty()) return kExitOk;
  if (!globals.json) PrintNote(absl::StrCat("compare: ", failures));
  return FailShown(absl::FailedPreconditionError(failures),
                   comparison->Regressions(options.fail_above) > 0 ? kExitRefused : kExitNotJudged);
}

}  // namespace

int BenchComparison::Regressions(double percent) const {
  return static_cast<int>(std::count_if(rows.begin(), rows.end(), [&](const ComparedRow& row) {
    return row.verdict == "no longer runs" ||
           (row.verdict == "slower" && row.ratio > 1 + percent / 100);
  }));
}

BenchComparison::Unjudged BenchComparison::NotJudged(double percent) const {
  Unjudged unjudged;
  for (const ComparedRow& row : rows) {
    if (!row.after.has_value() && HasTime(row.before)) ++unjudged.missing;
    const bool unsure = row.verdict == "unstable" || row.verdict == "no interval known";
    if (unsure && row.ratio > 1 + percent / 100) ++unjudged.noisy;
  }
  return unjudged;
}

absl::StatusOr<BenchComparison> Compare(const Measurements& before, const Measurements& after) {
  if (before.kernel != after.kernel)
    return absl::InvalidArgumentError(absl::StrCat(before.name, " is of ", before.kernel, ", ",
                                                   after.name, " of ", after.kernel,
                                                   ": only one kernel's can be compared"));
  BenchComparison comparison{.kernel = after.kernel,
                             .before_name = before.name,
                             .after_name = after.name,
                             .before_attributes = before.attributes,
                             .after_attributes = after.attributes,
                             .devices = CompareDevices(before, after),
                             .rows = CompareRows(before, after)};
  comparison.warnings = Warnings(before, after, comparison.devices);
  if (std::none_of(comparison.rows.begin(), comparison.rows.end(), [](const ComparedRow& row) {
        return row.before.has_value() && row.after.has_value();
      }))
    return absl::InvalidArgumentError(absl::StrCat(
        before.name, " and ", after.name,
        " have no row in common: same shape, type, device and implementation",
        comparison.warnings.empty() ? "" : "; ", absl::StrJoin(comparison.warnings, "; ")));
  return comparison;
}

std::string ToText(const BenchComparison& comparison) {
  constexpr size_t kIndent = 2;
  std::string text =
      Fitted("",
             absl::StrCat(comparison.kernel, comparison.after_attributes.empty() ? "" : " ",
                          comparison.after_attributes, ": ", comparison.before_name, ", then ",
                          comparison.after_name),
             kIndent);
  for (const ComparedDevice& device : comparison.devices) {
    Table table({"", "BEFORE", "AFTER"});
    for (const ConditionLine& line : device.conditions)
      table.AddRow({line.name, CutMiddle(line.before.empty() ? "-" : line.before, kConditionWidth),
                    CutMiddle(line.after.empty() ? "-" : line.after, kConditionWidth)});
    absl::StrAppend(&text, "\n", table.ToString());
  }
  for (const std::string& warning : comparison.warnings)
    absl::StrAppend(&text, Fitted("warning: ", warning, kIndent));
  // Rows of one place, wherever they stand, in one table.
  std::vector<std::string> places;
  for (const ComparedRow& row : comparison.rows)
    if (std::find(places.begin(), places.end(), PlaceOf(row)) == places.end())
      places.push_back(PlaceOf(row));
  for (const std::string& place : places) {
    Table table = RowTable();
    for (const ComparedRow& row : comparison.rows)
      if (PlaceOf(row) == place) AddRow(row, &table);
    absl::StrAppend(&text, "\n", Fitted("", place, kIndent), table.ToString());
  }
  return text;
}

json ToJson(const BenchComparison& comparison) {
  json devices = json::array(), rows = json::array();
  for (const ComparedDevice& device : comparison.devices) {
    json lines = json::array();
    for (const ConditionLine& line : device.conditions)
      lines.push_back({{"name", line.name},
                       {"before", line.before},
                       {"after", line.after},
                       {"differs", line.differs}});
    devices.push_back({{"device", device.name}, {"lines", std::move(lines)}});
  }
  for (const ComparedRow& row : comparison.rows) {
    const MeasuredRow& either = row.either();
    rows.push_back({{"shape", either.shape},
                    {"data_type", either.data_type},
                    {"device", either.device},
                    {"implementation", PinnedName(either.result)},
                    {"before", ToJson(row.before)},
                    {"after", ToJson(row.after)},
                    {"ratio", OrNull(row.ratio)},
                    {"ratio_low", OrNull(row.ratio_low)},
                    {"ratio_high", OrNull(row.ratio_high)},
                    {"verdict", row.verdict}});
  }
  return {{"kernel", comparison.kernel},
          {"attributes",
           {{"before", comparison.before_attributes}, {"after", comparison.after_attributes}}},
          {"files", {{"before", comparison.before_name}, {"after", comparison.after_name}}},
          {"conditions", std::move(devices)},
          {"warnings", comparison.warnings},
          {"rows", std::move(rows)}};
}

Command AddCompareCommand(const Arguments& root, const Globals& globals) {
  const Arguments arguments =
      root.AddSubcommand("compare", "Show two benchmarks side by side, from files, with verdicts");
  const auto options = std::make_shared<CompareOptions>(arguments);
  return {arguments, [&globals, options] { return Run(globals, *options); }, /*asks_server=*/false};
}

}  // namespace warpcall::cli
