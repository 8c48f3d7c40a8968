#include "client/cli/bench/outputs.h"

#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/cli/bench/comparison.h"
#include "client/cli/bench/plot.h"
#include "client/cli/common/options.h"
#include "client/cli/common/output.h"
#include "client/cli/common/output_file.h"
#include "proto/common/status_macros.h"

namespace warpcall::cli {
namespace {

// Name of this run beside a baseline.
constexpr char kThisRun[] = "this run";
constexpr absl::string_view kPng = ".png";

bool IsFile(const std::string& name) { return !name.empty() && !NamesStdout(name); }

absl::Status CheckStdout(const BenchOutputs& outputs) {
  std::vector<std::string> wants;
  if (outputs.json) wants.push_back("--json");
  if (NamesStdout(outputs.csv)) wants.push_back("--csv -");
  if (NamesStdout(outputs.plot)) wants.push_back("--plot -");
  if (wants.size() > 1)
    return absl::InvalidArgumentError(
        absl::StrCat(wants[0], " and ", wants[1], " both want stdout"));
  if (!outputs.baseline.empty() && wants.size() == 1 && !outputs.json)
    return absl::InvalidArgumentError(
        absl::StrCat("--baseline shows its comparison on stdout, which ", wants[0], " wants"));
  return absl::OkStatus();
}

// Pictures are SVG. A file whose name promises PNG is refused before anything is measured.
absl::Status CheckPicture(const std::string& name) {
  if (!absl::EndsWithIgnoreCase(name, kPng)) return absl::OkStatus();
  const std::string svg = absl::StrCat(name.substr(0, name.size() - kPng.size()), ".svg");
  return absl::InvalidArgumentError(
      absl::StrCat("--plot ", name, ": pictures are written as SVG; write ", svg,
                   " and convert it: rsvg-convert -o ", name, " ", svg,
                   " (package librsvg2-bin of Debian and Ubuntu)"));
}

// Continues after an error and returns the first one.
absl::Status WriteFiles(const BenchOutputs& outputs, const BenchReport& report) {
  absl::Status status;
  if (IsFile(outputs.csv)) status.Update(WriteOutput(outputs.csv, ToCsv(report)));
  if (IsFile(outputs.plot)) status.Update(WriteOutput(outputs.plot, BenchPlot(report)));
  return status;
}

}  // namespace

absl::Status CheckOutputs(const BenchOutputs& outputs) {
  RETURN_IF_ERROR(CheckStdout(outputs));
  RETURN_IF_ERROR(CheckPicture(outputs.plot));
  RETURN_IF_ERROR(CheckApart({{"--csv", IsFile(outputs.csv) ? outputs.csv : ""},
                              {"--plot", IsFile(outputs.plot) ? outputs.plot : ""},
                              {"--baseline", outputs.baseline}}));
  if (IsFile(outputs.csv)) RETURN_IF_ERROR(CheckOutput(outputs.csv));
  return IsFile(outputs.plot) ? CheckOutput(outputs.plot) : absl::OkStatus();
}

bool PrintsText(const BenchOutputs& outputs) {
  return !outputs.json && !NamesStdout(outputs.csv) && !NamesStdout(outputs.plot);
}

absl::Status WriteOutputs(const BenchOutputs& outputs, const BenchReport& report,
                          const std::optional<Measurements>& baseline) {
  absl::Status status = WriteFiles(outputs, report);
  nlohmann::json value = ToJson(report);
  absl::StatusOr<BenchComparison> comparison = absl::UnknownError("none is wanted");
  if (baseline.has_value()) {
    const auto now = ToMeasurements(kThisRun, value);
    comparison = now.ok() ? Compare(*baseline, *now) : now.status();
    status.Update(comparison.status());
  }
  if (outputs.json) {
    if (comparison.ok()) value["comparison"] = ToJson(*comparison);
    PrintJson(value);
  } else if (NamesStdout(outputs.csv)) {
    PrintData(ToCsv(report));
  } else if (NamesStdout(outputs.plot)) {
    PrintData(BenchPlot(report));
  } else if (comparison.ok()) {
    PrintText(absl::StrCat("\n", ToText(*comparison)));
  }
  return status;
}

}  // namespace warpcall::cli
