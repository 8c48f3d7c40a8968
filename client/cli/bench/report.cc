#include "client/cli/bench/report.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/cli/common/benchmark_cells.h"
#include "client/cli/common/catalog.h"
#include "client/cli/common/command.h"
#include "client/cli/common/output.h"
#include "client/cli/common/table.h"
#include "proto/common/inspect_limits.h"
#include "proto/common/pinned_name.h"

namespace warpcall::cli {
namespace {

using client::BenchmarkResult;
using nlohmann::json;

// BenchmarkRequest.iterations where it is 0.
constexpr int64_t kSamplesDefault = 100;
// Shares of a memory ceiling up to here are the noise of both measurements.
constexpr double kShareMax = 1.05;
// Indent of a sentence's lines after the first.
constexpr size_t kIndent = 2;
// The server's words for the fastest row, and for rows that the deadline left out.
constexpr char kFastest[] = "fastest";
constexpr char kUnreached[] = "not reached before the call's deadline";

// Marks in the table that a line below it explains.
constexpr char kCutMark[] = "*";
constexpr char kOverCeilingMark[] = "!";

bool IsUnranked(const BenchmarkResult& result) {
  return result.unstable() && result.verdict().empty();
}

// Returns the fastest row; null if it is not known, because the point ended early or an unstable
// row may be faster.
const BenchmarkResult* Best(const client::BenchmarkReport& report) {
  const auto best =
      std::find_if(report.results().begin(), report.results().end(),
                   [](const BenchmarkResult& result) { return result.verdict() == kFastest; });
  return best == report.results().end() ? nullptr : &*best;
}

// VS BEST of a row that ran: its time over the best, or a word if it has no rank.
std::string VersusBest(const BenchmarkResult& result, double best_ns) {
  if (!(best_ns > 0)) return IsUnranked(result) ? "unstable" : "-";
  const bool is_exact =
      !IsUnranked(result) && !absl::StartsWith(result.verdict(), "not distinguishable");
  return absl::StrFormat("%s%.2f", is_exact ? "" : "~", result.median_ns() / best_ns);
}

// Clock, power and energy of a row in a settled run, and its arithmetic in one cycle; "-" if
// unknown.
std::vector<std::string> LoadCells(const BenchmarkResult& result) {
  const auto cell = [](double value) {
    return value > 0 ? absl::StrFormat("%.4g", value) : std::string("-");
  };
  const double hertz = result.settled_clock_mhz() * 1e6;
  return {cell(result.settled_clock_mhz()), cell(result.settled_power_watts()),
          cell(result.energy_joules() * 1e3),
          hertz > 0 ? cell(result.flops_per_second() / hertz) : "-"};
}

bool AnyHasOccupancy(const client::BenchmarkReport& report) {
  return std::any_of(
      report.results().begin(), report.results().end(),
      [](const BenchmarkResult& result) { return result.launch().theoretical_occupancy() > 0; });
}

std::vector<std::string> Cells(const BenchPoint& point, const BenchmarkResult& result,
                               double best_ns) {
  std::vector<std::string> cells = {
      NameCell(result),
      HumanTime(result.median_ns()),
      HumanTime(result.min_ns()),
      NoiseCell(result),
      absl::StrCat(result.iterations(), IsCut(point.call, result) ? kCutMark : ""),
      RateCell(result.bytes_per_second()),
      absl::StrCat(ShareCell(result.fraction_of_ceiling()),
                   IsOverCeiling(result) ? kOverCeilingMark : ""),
      RateCell(result.flops_per_second())};
  if (point.report.flops_ceiling() > 0)
    cells.push_back(ShareCell(result.flops_per_second() / point.report.flops_ceiling()));
  cells.push_back(result.checked_elements() > 0 ? absl::StrFormat("%.1e", result.relative_error())
                                                : "-");
  if (point.report.method() == kBenchmarkSettled)
    for (std::string& cell : LoadCells(result)) cells.push_back(std::move(cell));
  if (AnyHasOccupancy(point.report))
    cells.push_back(ShareCell(result.launch().theoretical_occupancy()));
  cells.push_back(VersusBest(result, best_ns));
  return cells;
}

Table PointTable(const BenchPoint& point) {
  const char* const share = IsOfReads(point.report) ? ">%READ" : ">%COPY";
  std::vector<Table::Column> columns = {"IMPLEMENTATION", ">MEDIAN", ">MIN",   ">NOISE", ">N",
                                        ">B/s",           share,     ">FLOP/s"};
  if (point.report.flops_ceiling() > 0) columns.push_back(">%MADD");
  columns.push_back(">ERROR");
  if (point.report.method() == kBenchmarkSettled)
    columns.insert(columns.end(), {">MHz", ">W", ">mJ", ">FLOP/CYCLE"});
  if (AnyHasOccupancy(point.report)) columns.push_back(">OCC");
  columns.push_back(">VS BEST");
  Table table(std::move(columns));
  const BenchmarkResult* const best = Best(point.report);
  for (const BenchmarkResult& result : Ranked(point.report)) {
    if (result.error().empty()) {
      table.AddRow(Cells(point, result, best == nullptr ? 0 : best->median_ns()));
    } else {
      table.AddNote({NameCell(result)},
                    // If the server skipped the row, its own message says so.
                    absl::StrCat(result.predicted_ns() > 0 ? "" : "did not run: ", result.error()));
    }
  }
  return table;
}

std::string CutNote(const BenchPoint& point) {
  const auto& results = point.report.results();
  const bool by_deadline = absl::IsDeadlineExceeded(point.status) ||
                           std::any_of(results.begin(), results.end(), IsUnreached);
  return absl::StrCat("fewer than the ", SamplesAsked(point.call), " samples asked for: ",
                      by_deadline ? "hit the point's time limit; raise --deadline"
                      : point.call.row_timeout > absl::ZeroDuration()
                          ? "hit --timeout; raise it or --deadline"
                          : "the server takes 1 s for a row; --timeout gives it longer");
}

constexpr char kOverCopyNote[] =
    "faster than the copy of this run: the data are cached, or the copy ran under load";
constexpr char kOverReadsNote[] =
    "faster than the reads of this run: the data are cached, or the reads ran under load";

const char* OverCeilingNote(const client::BenchmarkReport& report) {
  return IsOfReads(report) ? kOverReadsNote : kOverCopyNote;
}

constexpr char kUnstableNote[] =
    "unstable: too noisy or bimodal to rank; use a quieter machine, or raise --iterations and "
    "--timeout";

constexpr char kOnlyNamedNote[] =
    "only what --implementation names was timed; what was never timed may be faster, and auto no "
    "longer runs it";

constexpr char kNoBestNote[] = "VS BEST is unknown: an unstable implementation may be the fastest";

// Returns the explanations of the table's marks, but for those that `told` holds already, and adds
// them to it.
std::string Footnotes(const BenchPoint& point, std::set<std::string>* told) {
  bool cut = false, over = false, unstable = false, compared = false;
  for (const BenchmarkResult& result : point.report.results()) {
    cut |= IsCut(point.call, result);
    over |= IsOverCeiling(result);
    unstable |= IsUnranked(result);
    compared |= !result.verdict().empty();
  }
  const bool has_best = Best(point.report) != nullptr;
  std::string notes;
  const auto add = [&](bool holds, const std::string& mark, const std::string& note) {
    if (holds && told->insert(mark + note).second)
      absl::StrAppend(&notes, Fitted(mark, note, kIndent));
  };
  add(cut, absl::StrCat(kCutMark, " "), cut ? CutNote(point) : "");
  add(over, absl::StrCat(kOverCeilingMark, " "), OverCeilingNote(point.report));
  add(unstable, has_best ? "~ " : "", kUnstableNote);
  add(compared && !has_best, "", kNoBestNote);
  return notes;
}

std::string StatusText(const absl::Status& status) {
  return absl::StrCat(absl::StatusCodeToString(status.code()), ": ", status.message());
}

// "cpu: AMD EPYC 9334, host box, warpcalld 0.1.0".
std::string DeviceLine(const BenchReport& report, const BenchPoint& point) {
  constexpr size_t kDescriptionWidth = 52;
  if (point.device().empty()) return "";  // the call ended before the server said which
  const client::RunStamp& stamp = point.report.stamp();
  const std::string& version =
      stamp.server_version().empty() ? report.server.version : stamp.server_version();
  std::vector<std::string> facts;
  if (!stamp.device_description().empty())
    facts.push_back(CutMiddle(stamp.device_description(), kDescriptionWidth));
  if (!stamp.driver().empty()) facts.push_back(absl::StrCat("driver ", stamp.driver()));
  if (!report.server.host.empty()) facts.push_back(absl::StrCat("host ", report.server.host));
  if (!version.empty()) facts.push_back(absl::StrCat("warpcalld ", version));
  std::string line;
  for (const std::string& fact : facts)
    absl::StrAppend(&line, line.empty() ? point.device() + ": " : ", ", fact);
  return line.empty() ? "" : Fitted("", line, kIndent);
}

std::string Ceilings(const client::BenchmarkReport& report) {
  const double copy = report.ceiling_bytes_per_second();
  const std::string copies = copy > 0 ? HumanRate(copy, "B/s") : "";
  std::string text = "no copy ceiling was measured";
  if (IsOfReads(report))
    text = absl::StrCat("%READ of ", HumanRate(report.read_ceiling_bytes_per_second(), "B/s"),
                        copies.empty() ? "" : absl::StrCat(" (a copy reaches ", copies, ")"));
  else if (copy > 0)
    text = absl::StrCat("%COPY of ", copies);
  if (report.flops_ceiling() > 0)
    absl::StrAppend(&text, ", %MADD of ", HumanRate(report.flops_ceiling(), "FLOP/s"));
  return text;
}

json ToJson(const BenchPoint& point, const client::BenchmarkResult& result) {
  json value = cli::ToJson(result);
  value["notes"] = Notes(point, result);
  return value;
}

// Null: the server sent no stamp.
json ToJson(const client::RunStamp& stamp) {
  return stamp.started_unix_ns() == 0 ? json() : cli::ToJson(stamp);
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
      {"ceiling_bytes_per_second", OrNull(point.report.ceiling_bytes_per_second())},
      {"flops_ceiling", OrNull(point.report.flops_ceiling())},
      {"read_ceiling_bytes_per_second", OrNull(point.report.read_ceiling_bytes_per_second())},
      {"stamp", ToJson(point.report.stamp())},
      {"results", json::array()}};
  if (!point.status.ok()) value["error"] = cli::ToJson(point.status);
  if (report.tunes)
    value["auto"] = point.served.empty() ? json()
                                         : json{{"implementation", point.served},
                                                {"chosen_because", point.served_because}};
  for (const client::BenchmarkResult& result : point.report.results())
    value["results"].push_back(ToJson(point, result));
  return value;
}

// The names of JSON's values, except that attributes are a single text.
constexpr const char* kColumns[] = {
    "kernel", "shape", "data_type", "device", "ceiling_bytes_per_second", "implementation",
    "family", "error", "mean_ns", "median_ns", "min_ns", "p90_ns", "bytes_per_second",
    "flops_per_second", "fraction_of_ceiling", "relative_error", "checked_elements", "iterations",
    "launches_per_iteration", "bytes_moved", "flops", "theoretical_occupancy", "waves",
    "gpu_kernels", "p10_ns", "median_low_ns", "median_high_ns", "noise", "unstable", "verdict",
    "max_error", "predicted_ns", "notes", "variant",
    // Values of the point; empty where the server sent none.
    "attributes", "seed", "flops_ceiling", "host", "device_kind", "device_description", "driver",
    "cuda", "server_version", "client_version", "sm_clock_mhz_min", "sm_clock_mhz_max",
    "memory_clock_mhz", "temperature_celsius", "power_watts", "throttle_reasons", "samples_dropped",
    "started_unix_ns", "method", "settled_clock_mhz", "settled_power_watts",
    "settled_temperature_celsius", "energy_joules", "idle_power_watts",
    "read_ceiling_bytes_per_second"};

std::string Line(const json& values) {
  std::vector<std::string> fields;
  for (const char* const column : kColumns)
    fields.push_back(CsvField(values.value(column, json())));
  return CsvLine(fields);
}

// Returns the values that each line of a point repeats, by column. A 0 in the stamp means that the
// server does not know the value, except for the dropped samples.
json PlaceValues(const BenchReport& report, const BenchPoint& point) {
  json values = ToJson(report, point);
  values.erase("results");
  values["error"] = nullptr;
  for (const auto& [name, value] : values["stamp"].items())
    if (value != 0 || name == "samples_dropped") values[name] = value;
  if (values.value("server_version", "").empty()) values["server_version"] = report.server.version;
  std::vector<std::string> attributes;
  for (const auto& [name, value] : report.attributes)
    attributes.push_back(absl::StrCat(name, "=", AttributeText(value)));
  values.update({{"kernel", report.kernel},
                 {"attributes", absl::StrJoin(attributes, " ")},
                 {"seed", point.call.seed},
                 {"method", point.report.method()},
                 {"host", report.server.host},
                 {"client_version", ClientVersion()}});
  return values;
}

// Returns only measured figures: none for a row that did not run, and no errors for a result that
// was compared with nothing.
json ResultValues(const BenchPoint& point, const client::BenchmarkResult& result) {
  if (!result.error().empty())
    return {{"implementation", result.implementation()},
            {"family", result.family()},
            {"variant", result.launch().variant()},
            {"error", result.error()},
            {"predicted_ns", OrNull(result.predicted_ns())}};
  json values = ToJson(point, result);
  values["predicted_ns"] = nullptr;
  for (const char* const name :
       {"settled_clock_mhz", "settled_power_watts", "settled_temperature_celsius", "energy_joules"})
    if (values[name] == 0) values[name] = nullptr;
  if (result.checked_elements() == 0) values["relative_error"] = values["max_error"] = nullptr;
  values.update(json(values["launch"]));
  return values;
}

void AppendPoint(const BenchReport& report, const BenchPoint& point, std::string* csv) {
  json place = PlaceValues(report, point);
  for (const client::BenchmarkResult& result : Ranked(point.report)) {
    json line = place;
    line.update(ResultValues(point, result));
    absl::StrAppend(csv, Line(line));
  }
  if (point.status.ok()) return;
  place["ceiling_bytes_per_second"] = place["read_ceiling_bytes_per_second"] = nullptr;
  place["error"] =
      absl::StrCat(absl::StatusCodeToString(point.status.code()), ": ", point.status.message());
  absl::StrAppend(csv, Line(place));
}

}  // namespace

bool BenchReport::several_devices() const {
  std::set<std::string> devices;
  for (const BenchPoint& point : points)
    if (!point.device().empty()) devices.insert(point.device());
  return devices.size() > 1;
}

std::string KernelTitle(const BenchReport& report) {
  std::string title = report.kernel;
  for (const auto& [name, value] : report.attributes)
    absl::StrAppend(&title, " ", name, "=", AttributeText(value));
  return title;
}

std::string ProblemTitle(const BenchPoint& point) {
  return absl::StrCat(point.shape, " ", DataTypeName(point.data_type));
}

std::vector<BenchmarkResult> Ranked(const client::BenchmarkReport& report) {
  std::vector<BenchmarkResult> ranked(report.results().begin(), report.results().end());
  const bool has_best = Best(report) != nullptr;
  // NaN would break the sort's order.
  const auto time = [](const BenchmarkResult& row) {
    return std::isnan(row.median_ns()) ? std::numeric_limits<double>::infinity() : row.median_ns();
  };
  const auto order = [&](const BenchmarkResult& row) {
    const bool failed = !row.error().empty();
    return std::tuple(failed, has_best && !failed && IsUnranked(row), failed ? 0 : time(row));
  };
  std::stable_sort(ranked.begin(), ranked.end(),
                   [&](const auto& a, const auto& b) { return order(a) < order(b); });
  return ranked;
}

int64_t SamplesAsked(const client::BenchmarkCall& call) {
  return call.iterations > 0 ? call.iterations : kSamplesDefault;
}

bool IsCut(const client::BenchmarkCall& call, const BenchmarkResult& result) {
  const bool exact_enough = call.max_noise > 0 && result.noise() <= call.max_noise;
  if (call.method == kBenchmarkSettled) return false;
  return result.error().empty() && !exact_enough && result.iterations() < SamplesAsked(call);
}

bool IsUnreached(const BenchmarkResult& result) {
  return absl::StartsWith(result.error(), kUnreached);
}

absl::Status Outcome(const BenchPoint& point) {
  if (!point.status.ok()) return point.status;
  const auto& results = point.report.results();
  const auto unreached = std::find_if(results.begin(), results.end(), IsUnreached);
  if (unreached != results.end())
    return absl::DeadlineExceededError(
        absl::StrCat(PinnedName(*unreached), ": ", unreached->error()));
  if (std::any_of(results.begin(), results.end(),
                  [](const BenchmarkResult& result) { return result.error().empty(); }))
    return absl::OkStatus();
  return absl::FailedPreconditionError("no implementation ran");
}

absl::Status Outcome(const BenchReport& report) {
  int failed = 0;
  absl::Status first;
  for (const BenchPoint& point : report.points) {
    const absl::Status status = Outcome(point);
    if (status.ok() || ++failed > 1) continue;
    first = absl::Status(status.code(), absl::StrCat(ProblemTitle(point), ": ", status.message()));
  }
  if (first.ok()) return first;
  return absl::Status(first.code(),
                      absl::StrCat(failed, " of ", report.points.size(),
                                   failed == 1 ? " points was" : " points were",
                                   " refused or ended early; the first is ", first.message()));
}

bool IsOfReads(const client::BenchmarkReport& report) {
  return report.read_ceiling_bytes_per_second() > 0;
}

bool IsOverCeiling(const BenchmarkResult& result) {
  return result.error().empty() && result.fraction_of_ceiling() > kShareMax;
}

std::vector<std::string> Notes(const BenchPoint& point, const BenchmarkResult& result) {
  std::vector<std::string> notes;
  if (IsCut(point.call, result)) notes.push_back(CutNote(point));
  if (IsOverCeiling(result)) notes.push_back(OverCeilingNote(point.report));
  if (result.unstable()) notes.push_back(kUnstableNote);
  return notes;
}

std::string BenchText::Heading() const { return Fitted("", KernelTitle(report_), kIndent); }

std::string BenchText::Point(const BenchPoint& point) {
  const std::string title = ProblemTitle(point);
  const std::string on = point.device().empty() ? "" : absl::StrCat(" on ", point.device());
  if (!point.status.ok() && point.report.results().empty()) {
    const std::string why = point.asked ? absl::StrCat("refused: ", StatusText(point.status))
                                        : std::string(point.status.message());
    return absl::StrCat("\n", Fitted("", absl::StrCat(title, on, ": ", why), kIndent));
  }
  std::string text = "\n";
  if (const std::string line = DeviceLine(report_, point); told_.insert(line).second)
    absl::StrAppend(&text, line);
  const bool none = point.report.results().empty();
  const std::string what = none ? "no implementation fits" : Ceilings(point.report);
  absl::StrAppend(&text, Fitted("", absl::StrCat(title, on, ": ", what), kIndent));
  if (none) return text;
  absl::StrAppend(&text, PointTable(point).ToString(), Footnotes(point, &told_));
  if (!point.status.ok())
    absl::StrAppend(&text,
                    Fitted("", "not all rows were measured: " + StatusText(point.status), kIndent));
  if (!point.served.empty())
    absl::StrAppend(
        &text,
        Fitted("", absl::StrCat("auto runs ", point.served, ", ", point.served_because), kIndent));
  if (!point.served.empty() && !point.call.implementations.empty() &&
      told_.insert(kOnlyNamedNote).second)
    absl::StrAppend(&text, Fitted("", kOnlyNamedNote, kIndent));
  return text;
}

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
          {"method", OrNull(call.method)},
          {"client_version", ClientVersion()},
          {"server",
           {{"address", report.server.address},
            {"host", OrNull(report.server.host)},
            {"version", OrNull(report.server.version)}}},
          {"points", std::move(points)}};
}

std::string ToCsv(const BenchReport& report) {
  std::string csv = CsvLine({std::begin(kColumns), std::end(kColumns)});
  for (const BenchPoint& point : report.points) AppendPoint(report, point, &csv);
  return csv;
}

}  // namespace warpcall::cli
