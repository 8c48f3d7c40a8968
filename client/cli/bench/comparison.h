// Two benchmarks side by side: what became faster, what slower, as far as their intervals tell.
//
// JSON: kernel, attributes {before, after}, files {before, after}
//   conditions  of each device: device, and lines of {name, before, after, differs}
//   warnings    why times may differ though the programs do not, and what a file lacks
//   rows        shape, data_type, device, implementation, verdict
//     before, after   {median_ns, median_low_ns, median_high_ns, iterations, unstable, error}, or
//                     null where the row is not in that file
//     ratio, ratio_low, ratio_high    after over before; null where either has no time, or no
//                     interval
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cli/bench/measurements.h"

namespace warpcall::cli {

struct ComparedRow {
  std::optional<MeasuredRow> before;
  std::optional<MeasuredRow> after;
  double ratio = 0;  // ratio of the medians, after over before; 0: one is missing
  double ratio_low = 0;
  double ratio_high = 0;
  // "faster", "slower" (their 95 % intervals do not overlap), "no difference seen", "unstable",
  // "no interval known", "did not run before", "no longer runs", "did not run", "only before",
  // "only after".
  std::string verdict = "";

  const MeasuredRow& either() const { return after.has_value() ? *after : *before; }
};

// A condition of two benchmarks.
struct ConditionLine {
  std::string name;  // "driver"
  std::string before;
  std::string after;
  bool differs = false;  // so that times may do so for that reason alone
};

struct ComparedDevice {
  std::string name;                       // after's
  std::vector<ConditionLine> conditions;  // those that are known of either
};

struct BenchComparison {
  std::string kernel;
  std::string before_name;
  std::string after_name;
  std::string before_attributes;
  std::string after_attributes;
  std::vector<ComparedDevice> devices = {};
  std::vector<std::string> warnings = {};
  std::vector<ComparedRow> rows = {};  // in the order of `after`, then what only `before` has

  // Rows that are slower by more than this, or no longer run.
  int Regressions(double percent) const;
  // Rows of which nobody can say whether they are such.
  struct Unjudged {
    int missing = 0;  // that ran before, and are not in `after`
    int noisy = 0;    // that took longer by more than this, but for which no intervals vouch
  };
  Unjudged NotJudged(double percent) const;
};

// INVALID_ARGUMENT for benchmarks of two kernels, or without a row in both. Where each has one
// device, these are compared whatever their names; of several, those of one name, where it is
// known.
absl::StatusOr<BenchComparison> Compare(const Measurements& before, const Measurements& after);

std::string ToText(const BenchComparison& comparison);
nlohmann::json ToJson(const BenchComparison& comparison);

}  // namespace warpcall::cli
