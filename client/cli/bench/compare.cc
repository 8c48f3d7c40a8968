// warpcall compare: two benchmarks that were kept, side by side.
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cli/bench/comparison.h"
#include "client/cli/bench/measurements.h"
#include "client/cli/common/command.h"
#include "client/cli/common/options.h"
#include "client/cli/common/output.h"
#include "proto/common/status_macros.h"

namespace warpcall::cli {
namespace {

constexpr double kPercentMax = 1e6;

constexpr char kFooter[] =
    R"(The files are what `warpcall bench ... --json` printed:
  warpcall bench softmax --shape 4096x1024 --json > before.json
  warpcall bench softmax --shape 4096x1024 --json > after.json
  warpcall compare before.json after.json --fail-above 5
RATIO is the median after over that before: below 1 is faster. A verdict is
"faster" or "slower" where the 95% intervals of the medians do not overlap, and
"no difference seen" where they do. 95% is how far the interval reaches below
and above the median, in percent. No server is asked.
Exit status: 0; 1 with --fail-above, a row became slower by more than that, no
longer runs, or can't be judged: it is missing after, or slower by more than
that and too noisy to be sure; 2 usage, or a file that is not such.)";

struct CompareOptions {
  explicit CompareOptions(const Arguments& arguments) {
    arguments.Add("before", &before, "What was measured first").Required().TypeName("BEFORE.json");
    arguments.Add("after", &after, "What was measured then").Required().TypeName("AFTER.json");
    arguments
        .Add("--fail-above", &fail_above,
             "End with status 1 if a row became slower by more than this, or no longer runs, or "
             "nobody can say")
        .Between(0, kPercentMax)
        .TypeName("PERCENT");
    arguments.SetFooter(kFooter);
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

// What keeps --fail-above from being content; empty: nothing does.
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
  return FailTold(absl::FailedPreconditionError(failures), kExitRefused);
}

}  // namespace

Command AddCompareCommand(const Arguments& root, const Globals& globals) {
  const Arguments arguments =
      root.AddSubcommand("compare", "Show two benchmarks side by side, from files, with verdicts");
  const auto options = std::make_shared<CompareOptions>(arguments);
  return {arguments, [&globals, options] { return Run(globals, *options); }, /*asks_server=*/false};
}

}  // namespace warpcall::cli
