#include "client/cli/profile/report.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "client/cli/common/output.h"
#include "client/cli/common/table.h"
#include "client/cli/profile/comparison.h"
#include "client/cli/profile/verdict.h"

namespace warpcall::cli {
namespace {

using client::ProfileRow;
constexpr auto kRight = Table::Align::kRight;
using nlohmann::json;

constexpr size_t kRowsShown = 10;
// With the other columns at their usual widths, a line has some 90 characters.
constexpr size_t kNameWidth = 36;
constexpr size_t kLaunchNameWidth = 28;
// Indent of a sentence's lines after the first.
constexpr size_t kIndent = 2;

std::vector<ProfileRow> LongestFirst(const client::ProfileReport& report,
                                     const std::function<bool(const ProfileRow&)>& wanted) {
  std::vector<ProfileRow> rows;
  std::copy_if(report.rows().begin(), report.rows().end(), std::back_inserter(rows), wanted);
  std::stable_sort(rows.begin(), rows.end(),
                   [](const auto& a, const auto& b) { return a.total_ns() > b.total_ns(); });
  return rows;
}

std::vector<ProfileRow> OfKind(const client::ProfileReport& report, const char* kind) {
  return LongestFirst(report, [kind](const ProfileRow& row) { return row.kind() == kind; });
}

// True if a graph's steps are known to have done some of the work.
bool HasSteps(const client::ProfileReport& report) {
  return std::any_of(report.rows().begin(), report.rows().end(),
                     [](const ProfileRow& row) { return !row.step().empty(); });
}

// The table of the first rows, and how many more there are.
std::string Shown(Table table, const std::vector<ProfileRow>& rows,
                  const std::function<std::vector<std::string>(const ProfileRow&)>& cells) {
  for (size_t i = 0; i < std::min(rows.size(), kRowsShown); ++i) table.AddRow(cells(rows[i]));
  std::string text = table.ToString();
  if (rows.size() > kRowsShown)
    absl::StrAppend(&text, rows.size() - kRowsShown, " more (all: --json)\n");
  return text;
}

// `columns` behind a first one for the rows' steps, where `report` has some.
std::vector<Table::Column> WithStep(const client::ProfileReport& report,
                                    std::vector<Table::Column> columns) {
  if (HasSteps(report)) columns.emplace(columns.begin(), "STEP");
  return columns;
}

// Likewise the cells of such a row.
std::vector<std::string> WithStep(const client::ProfileReport& report, const ProfileRow& row,
                                  std::vector<std::string> cells) {
  if (HasSteps(report)) cells.insert(cells.begin(), row.step().empty() ? "-" : row.step());
  return cells;
}

std::string DeviceTable(const client::ProfileReport& report) {
  Table table(WithStep(report, {"NAME", "KIND", ">CALLS", ">TOTAL", ">MEAN", ">SHARE", ">B/s"}));
  return Shown(std::move(table), LongestFirst(report, IsOfDevice), [&](const ProfileRow& row) {
    const double total_ns = static_cast<double>(row.total_ns());
    return WithStep(
        report, row,
        {CutMiddle(row.name(), kNameWidth), row.kind(), absl::StrCat(row.calls()),
         HumanTime(total_ns), HumanTime(row.mean_ns()), PercentOf(row.fraction()),
         HumanRate(row.total_ns() > 0 ? static_cast<double>(row.bytes()) * 1e9 / total_ns : 0,
                   "B/s")});
  });
}

// Renders the kernels' launches and counters; empty if no kernel has a grid.
std::string LaunchTable(const client::ProfileReport& report) {
  std::vector<ProfileRow> rows = OfKind(report, kKernelRow);
  if (std::all_of(rows.begin(), rows.end(),
                  [](const ProfileRow& row) { return row.grid().empty(); }))
    return "";
  const Table table(
      WithStep(report, {"LAUNCH", ">REGS", ">SMEM", ">GRID", ">BLOCK", ">OCC", ">SM", ">DRAM"}));
  return Shown(table, rows, [&](const ProfileRow& row) {
    const auto or_none = [](const std::string& text) { return text.empty() ? "-" : text; };
    return WithStep(
        report, row,
        {CutMiddle(row.name(), kLaunchNameWidth), absl::StrCat(row.registers_per_thread()),
         HumanBytes(static_cast<double>(row.shared_memory_bytes())), or_none(row.grid()),
         or_none(row.block()), PercentOf(row.achieved_occupancy()), PercentOf(row.sm_throughput()),
         PercentOf(row.dram_throughput())});
  });
}

std::string HostTable(const client::ProfileReport& report) {
  Table table({"HOST PHASE", ">CALLS", ">TOTAL", ">MEAN"});
  const std::vector<ProfileRow> rows = OfKind(report, kHostRow);
  for (const ProfileRow& row : rows)
    table.AddRow({CutMiddle(row.name(), kNameWidth), absl::StrCat(row.calls()),
                  HumanTime(static_cast<double>(row.total_ns())), HumanTime(row.mean_ns())});
  return rows.empty() ? "" : table.ToString();
}

std::string ThreadTable(const client::ProfileReport& report) {
  const std::vector<ProfileRow> rows = OfKind(report, kThreadRow);
  if (rows.empty()) return "";
  return Shown(Table({"THREAD", ">WORKED", ">OF THE TIME"}), rows, [](const ProfileRow& row) {
    return std::vector<std::string>{row.name(), HumanTime(static_cast<double>(row.total_ns())),
                                    // None of what all waited together.
                                    row.fraction() > 0 ? PercentOf(row.fraction()) : "-"};
  });
}

std::string CounterTable(const client::ProfileReport& report) {
  const std::vector<ProfileRow> rows = OfKind(report, kCounterRow);
  if (rows.empty()) return "";
  return Shown(Table({"COUNTER", ">TOTAL", ">PER RUN", ">BYTES"}), rows,
               [&report](const ProfileRow& row) {
                 const double runs = std::max(report.iterations(), 1);
                 return std::vector<std::string>{
                     row.name(), absl::StrCat(row.calls()),
                     HumanRate(static_cast<double>(row.calls()) / runs, ""),
                     row.bytes() > 0 ? HumanBytes(static_cast<double>(row.bytes())) : "-"};
               });
}

std::string Passes(const Figures& figures) {
  if (figures.passes >= 0) return absl::StrFormat("%.2f", figures.passes);
  return figures.passes_max < 0 ? "-" : absl::StrFormat("<= %.2f", figures.passes_max);
}

// Renders the figures of one run.
std::string FigureTable(const Figures& figures) {
  Table table(
      {">KERNELS", ">TIME", ">AS A COPY", ">LEAST BYTES", ">PASSES", ">B/s", ">% COPY", ">FLOP/s"});
  const auto if_known = [](double value, const std::string& text) {
    return value < 0 ? "-" : text;
  };
  const double copy_ns = figures.kernel_ns * figures.fraction_of_ceiling;
  table.AddRow({absl::StrFormat("%.4g", figures.kernels), HumanTime(figures.kernel_ns),
                if_known(figures.fraction_of_ceiling, HumanTime(std::max(copy_ns, 0.0))),
                if_known(figures.least_bytes, HumanBytes(std::max(figures.least_bytes, 0.0))),
                Passes(figures), HumanRate(figures.bytes_per_second, "B/s"),
                PercentOf(figures.fraction_of_ceiling),
                HumanRate(figures.flops_per_second, "FLOP/s")});
  return table.ToString();
}

std::string Iterations(const Profiled& profiled) {
  const int32_t runs = profiled.report.iterations();
  if (runs < profiled.iterations_asked)
    return absl::StrCat(runs, " of ", profiled.iterations_asked,
                        " iterations (the server's time for a profile was up)");
  return absl::StrCat(runs, runs == 1 ? " iteration" : " iterations");
}

std::string Listed(absl::string_view before, const std::vector<std::string>& sentences) {
  std::string text;
  for (const std::string& sentence : sentences)
    absl::StrAppend(&text, Fitted(before, sentence, kIndent));
  return text;
}

std::string Title(Bound bound) {
  if (bound == Bound::kUnknown) return "Bound unknown";
  if (bound == Bound::kInconclusive) return "Inconclusive";
  return absl::StrCat("Bound by ", BoundName(bound));
}

// `before` comes on the same line.
std::string Bounded(absl::string_view before, const Verdict& verdict) {
  return Fitted("", absl::StrCat(before, Title(verdict.bound), ": ", verdict.reason), kIndent);
}

// Why something is missing.
std::vector<std::string> Notes(const Profiled& profiled) {
  std::vector<std::string> notes;
  if (!profiled.report.counters_unavailable().empty() && profiled.device.kind != kCpuKind)
    notes.push_back(
        absl::StrCat("no counters (OCC, SM, DRAM): ", profiled.report.counters_unavailable()));
  const std::vector<ProfileRow> counters = OfKind(profiled.report, kCounterRow);
  const bool counted = std::any_of(counters.begin(), counters.end(), [](const ProfileRow& row) {
    return row.name() == "cache misses";
  });
  if (profiled.device.kind == kCpuKind && !counted)
    notes.push_back(absl::StrCat("hardware counters: ", profiled.report.counters_unavailable()));
  if (!profiled.plan_missing.empty())
    notes.push_back(absl::StrCat("least bytes and FLOPs unknown: ", profiled.plan_missing));
  return notes;
}

// Renders the notes of both, once if they are equal.
std::string NotesOfTwo(const Profiled& first, const Profiled& second) {
  if (Notes(first) == Notes(second)) return Listed("", Notes(first));
  return absl::StrCat(Listed(NameOf(first) + ": ", Notes(first)),
                      Listed(NameOf(second) + ": ", Notes(second)));
}

std::string TextOfOne(const Profiled& profiled) {
  const client::ProfileReport& report = profiled.report;
  const Figures figures = FiguresOf(profiled);
  const Verdict verdict = Judge(profiled, figures);
  const std::string title = absl::StrCat(
      profiled.kernel, " on ", report.device(),
      profiled.is_graph ? "" : absl::StrCat(" by ", NameOf(profiled)), ", ", Iterations(profiled));
  std::string text =
      absl::StrCat(Fitted("", title, kIndent), Bounded("", verdict), Listed("- ", verdict.advice));
  for (const std::string& table :
       {FigureTable(figures), DeviceTable(report), LaunchTable(report), HostTable(report),
        ThreadTable(report), CounterTable(report), Listed("", Notes(profiled))})
    if (!table.empty()) absl::StrAppend(&text, "\n", table);
  return text;
}

std::string TextOfTwo(const Profiled& first, const Profiled& second) {
  const Comparison comparison = Compare(first, second);
  const client::ProfileReport& a = first.report;
  const client::ProfileReport& b = second.report;
  const std::string title =
      absl::StrCat(first.is_graph ? "graphs" : first.kernel, " on ", a.device(), " by ",
                   NameOf(first), " (", Iterations(first), ") and by ", NameOf(second),
                   b.device() == a.device() ? "" : absl::StrCat(" on ", b.device()), " (",
                   Iterations(second), ")");
  std::string text = Fitted("", title, kIndent);
  if (comparison.time_ratio > 0) {
    const bool second_slower = comparison.time_ratio >= 1;
    const double times = second_slower ? comparison.time_ratio : 1 / comparison.time_ratio;
    absl::StrAppend(&text, Fitted("",
                                  absl::StrFormat("%s takes %.2f times as long as %s.",
                                                  NameOf(second_slower ? second : first), times,
                                                  NameOf(second_slower ? first : second)),
                                  kIndent));
  }
  absl::StrAppend(&text, Listed("- ", comparison.reasons), "\n");
  for (const Profiled* const profiled : {&first, &second})
    absl::StrAppend(&text,
                    Bounded(NameOf(*profiled) + ": ", Judge(*profiled, FiguresOf(*profiled))));
  Table table({"PER RUN", {NameOf(first), kRight}, {NameOf(second), kRight}, ">RATIO"});
  for (const ComparedFigure& figure : comparison.figures)
    table.AddRow({figure.name, figure.first, figure.second,
                  figure.ratio < 0 ? "-" : absl::StrFormat("%.2f", figure.ratio)});
  absl::StrAppend(&text, "\n", table.ToString());
  const std::string notes = NotesOfTwo(first, second);
  if (!notes.empty()) absl::StrAppend(&text, "\n", notes);
  return text;
}

struct NamedFigure {
  const char* name;
  double Figures::*value;
};
constexpr NamedFigure kFigures[] = {
    {"run_ns", &Figures::run_ns},
    {"kernel_ns", &Figures::kernel_ns},
    {"kernels", &Figures::kernels},
    {"gap_ns", &Figures::gap_ns},
    {"transfer_ns", &Figures::transfer_ns},
    {"least_bytes", &Figures::least_bytes},
    {"flops", &Figures::flops},
    {"counted_bytes", &Figures::counted_bytes},
    {"ceiling_bytes_per_second", &Figures::ceiling_bytes_per_second},
    {"bytes_per_second", &Figures::bytes_per_second},
    {"flops_per_second", &Figures::flops_per_second},
    {"fraction_of_ceiling", &Figures::fraction_of_ceiling},
    {"passes", &Figures::passes},
    {"passes_max", &Figures::passes_max},
    {"achieved_occupancy", &Figures::achieved_occupancy},
    {"sm_throughput", &Figures::sm_throughput},
    {"dram_throughput", &Figures::dram_throughput},
    {"threads_busy", &Figures::threads_busy},
    {"threads_waiting", &Figures::threads_waiting},
    {"instructions", &Figures::instructions},
    {"cycles", &Figures::cycles},
};

// -1: not known.
json ShareOrNull(double share) { return share < 0 ? json() : json(share); }
std::string OrEmpty(double share) { return share < 0 ? "" : ExactNumber(share); }

json ToJson(const ProfileRow& row) {
  json values = cli::ToJson(row);
  for (json& value : values)
    if (value.is_number_float()) value = ShareOrNull(value.get<double>());
  // A share of the time, which phases of the host have none of, nor counters.
  if (row.kind() == kHostRow || row.kind() == kCounterRow) values["fraction"] = nullptr;
  return values;
}

json ToJson(const Profiled& profiled) {
  const client::ProfileReport& report = profiled.report;
  json rows = json::array();
  for (const ProfileRow& row : report.rows()) rows.push_back(ToJson(row));
  const Figures figures = FiguresOf(profiled);
  json known = json::object();
  for (const NamedFigure& figure : kFigures)
    known[figure.name] = ShareOrNull(figures.*figure.value);
  const Verdict verdict = Judge(profiled, figures);
  return {{"kernel", profiled.kernel},
          {"implementation", report.implementation()},
          {"variant", report.variant()},
          {"device", report.device()},
          {"iterations", report.iterations()},
          {"iterations_asked",
           profiled.iterations_asked > 0 ? json(profiled.iterations_asked) : json()},
          {"counters_unavailable", report.counters_unavailable()},
          {"plan_missing", profiled.plan_missing},
          {"verdict",
           {{"bound", BoundName(verdict.bound)},
            {"reason", verdict.reason},
            {"advice", verdict.advice}}},
          {"figures", std::move(known)},
          {"rows", std::move(rows)}};
}

json ToJson(const Comparison& comparison) {
  json ratios = json::object();
  for (const ComparedFigure& figure : comparison.figures)
    ratios[figure.name] = ShareOrNull(figure.ratio);
  return {{"time_ratio", ShareOrNull(comparison.time_ratio)},
          {"ratios", std::move(ratios)},
          {"reasons", comparison.reasons}};
}

// The columns of one row: the names of its JSON.
constexpr const char* kRowColumns[] = {
    "name", "kind", "calls", "total_ns", "mean_ns", "fraction",
    // How a kernel was launched, and shares of the device's peak.
    "registers_per_thread", "shared_memory_bytes", "grid", "block", "achieved_occupancy",
    "sm_throughput", "dram_throughput", "bytes", "step"};

std::vector<std::string> Heading() {
  std::vector<std::string> heading = {"kernel", "implementation", "device"};
  heading.insert(heading.end(), std::begin(kRowColumns), std::end(kRowColumns));
  heading.insert(heading.end(), {"iterations", "verdict.bound", "verdict.reason", "verdict.advice",
                                 "comparison.time_ratio", "comparison.reasons"});
  for (const NamedFigure& figure : kFigures)
    heading.push_back(absl::StrCat("figures.", figure.name));
  return heading;
}

// Returns the last fields of every line of one implementation.
std::vector<std::string> Ending(const Profiled& profiled, const Comparison& comparison) {
  const Figures figures = FiguresOf(profiled);
  const Verdict verdict = Judge(profiled, figures);
  std::vector<std::string> ending = {absl::StrCat(profiled.report.iterations()),
                                     BoundName(verdict.bound),
                                     verdict.reason,
                                     absl::StrJoin(verdict.advice, " "),
                                     OrEmpty(comparison.time_ratio),
                                     absl::StrJoin(comparison.reasons, " ")};
  for (const NamedFigure& figure : kFigures) ending.push_back(OrEmpty(figures.*figure.value));
  return ending;
}

void AppendLines(const Profiled& profiled, const std::vector<std::string>& ending,
                 std::string* csv) {
  const client::ProfileReport& report = profiled.report;
  for (const ProfileRow& row : report.rows()) {
    std::vector<std::string> fields = {profiled.kernel, NameOf(profiled), report.device()};
    const json values = ToJson(row);
    for (const char* const column : kRowColumns) fields.push_back(CsvField(values[column]));
    fields.insert(fields.end(), ending.begin(), ending.end());
    absl::StrAppend(csv, CsvLine(fields));
  }
}

}  // namespace

std::string ToText(absl::Span<const Profiled> profiled) {
  return profiled.size() == 1 ? TextOfOne(profiled[0]) : TextOfTwo(profiled[0], profiled[1]);
}

json ToJson(absl::Span<const Profiled> profiled) {
  if (profiled.size() == 1) return ToJson(profiled[0]);
  json value = {{"profiles", json::array({ToJson(profiled[0]), ToJson(profiled[1])})},
                {"comparison", ToJson(Compare(profiled[0], profiled[1]))}};
  if (!profiled[0].is_graph) value["kernel"] = profiled[0].kernel;
  return value;
}

std::string ToCsv(absl::Span<const Profiled> profiled) {
  std::string csv = CsvLine(Heading());
  // The first is what the second is compared with.
  AppendLines(profiled[0], Ending(profiled[0], {}), &csv);
  if (profiled.size() > 1)
    AppendLines(profiled[1], Ending(profiled[1], Compare(profiled[0], profiled[1])), &csv);
  return csv;
}

}  // namespace warpcall::cli
