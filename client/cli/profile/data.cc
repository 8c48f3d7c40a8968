// The report's JSON and CSV.
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cli/common/csv.h"
#include "client/cli/common/output.h"
#include "client/cli/profile/comparison.h"
#include "client/cli/profile/report.h"
#include "client/cli/profile/verdict.h"

namespace warpcall::cli {
namespace {

using client::ProfileRow;
using nlohmann::json;

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
json OrNull(double share) { return share < 0 ? json() : json(share); }
std::string OrEmpty(double share) { return share < 0 ? "" : ExactNumber(share); }

json ToJson(const ProfileRow& row) {
  json values = cli::ToJson(row);
  for (json& value : values)
    if (value.is_number_float()) value = OrNull(value.get<double>());
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
  for (const NamedFigure& figure : kFigures) known[figure.name] = OrNull(figures.*figure.value);
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
    ratios[figure.name] = OrNull(figure.ratio);
  return {{"time_ratio", OrNull(comparison.time_ratio)},
          {"ratios", std::move(ratios)},
          {"reasons", comparison.reasons}};
}

// The columns of one row: the names of its JSON.
constexpr const char* kRowColumns[] = {
    "name", "kind", "calls", "total_ns", "mean_ns", "fraction",
    // How a kernel was launched, and shares of the device's peak.
    "registers_per_thread", "shared_memory_bytes", "grid", "block", "achieved_occupancy",
    "sm_throughput", "dram_throughput", "bytes"};

std::vector<std::string> Heading() {
  std::vector<std::string> heading = {"kernel", "implementation", "device"};
  heading.insert(heading.end(), std::begin(kRowColumns), std::end(kRowColumns));
  heading.insert(heading.end(), {"iterations", "verdict.bound", "verdict.reason", "verdict.advice",
                                 "comparison.time_ratio", "comparison.reasons"});
  for (const NamedFigure& figure : kFigures)
    heading.push_back(absl::StrCat("figures.", figure.name));
  return heading;
}

// What every line of one implementation ends with.
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
    std::vector<std::string> fields = {profiled.kernel, NameOf(report), report.device()};
    const json values = ToJson(row);
    for (const char* const column : kRowColumns) fields.push_back(CsvField(values[column]));
    fields.insert(fields.end(), ending.begin(), ending.end());
    absl::StrAppend(csv, CsvLine(fields));
  }
}

}  // namespace

json ToJson(absl::Span<const Profiled> profiled) {
  if (profiled.size() == 1) return ToJson(profiled[0]);
  return {{"kernel", profiled[0].kernel},
          {"profiles", json::array({ToJson(profiled[0]), ToJson(profiled[1])})},
          {"comparison", ToJson(Compare(profiled[0], profiled[1]))}};
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
