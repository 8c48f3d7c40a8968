#include "client/cli/bench/comparison.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace warpcall::cli {
namespace {

bool HasTime(const std::optional<MeasuredRow>& row) {
  return row.has_value() && row->error.empty() && std::isfinite(row->median_ns) &&
         row->median_ns > 0;
}

bool HasInterval(const MeasuredRow& row) { return row.low_ns > 0 && row.high_ns >= row.low_ns; }

std::string VerdictOfTimes(const MeasuredRow& before, const MeasuredRow& after) {
  if (before.unstable || after.unstable) return "unstable";
  if (!HasInterval(before) || !HasInterval(after)) return "no interval known";
  if (after.high_ns < before.low_ns) return "faster";
  if (after.low_ns > before.high_ns) return "slower";
  return "no difference seen";
}

std::string Verdict(const ComparedRow& row) {
  if (!row.before.has_value()) return "only after";
  if (!row.after.has_value()) return "only before";
  const bool before = HasTime(row.before), after = HasTime(row.after);
  if (before && after) return VerdictOfTimes(*row.before, *row.after);
  return before ? "no longer runs" : after ? "did not run before" : "did not run";
}

ComparedRow Compared(std::optional<MeasuredRow> before, std::optional<MeasuredRow> after) {
  ComparedRow row{.before = std::move(before), .after = std::move(after)};
  row.verdict = Verdict(row);
  if (!HasTime(row.before) || !HasTime(row.after)) return row;
  row.ratio = row.after->median_ns / row.before->median_ns;
  if (!HasInterval(*row.before) || !HasInterval(*row.after)) return row;
  row.ratio_low = row.after->low_ns / row.before->high_ns;
  row.ratio_high = row.after->high_ns / row.before->low_ns;
  return row;
}

// Whether devices are told apart by their names.
bool SeveralDevices(const Measurements& before, const Measurements& after) {
  return before.devices.size() > 1 || after.devices.size() > 1;
}

std::vector<ComparedRow> CompareRows(const Measurements& before, const Measurements& after) {
  const bool several = SeveralDevices(before, after);
  const auto are_one = [several](const MeasuredRow& a, const MeasuredRow& b) {
    return a.shape == b.shape && a.data_type == b.data_type &&
           a.implementation == b.implementation &&
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

std::vector<ComparedDevice> CompareDevices(const Measurements& before, const Measurements& after) {
  const bool several = SeveralDevices(before, after);
  std::vector<ComparedDevice> devices;
  for (const auto& [name, conditions] : after.devices) {
    const auto found = several ? before.devices.find(name) : before.devices.begin();
    if (found != before.devices.end())
      devices.push_back({name, Compare(found->second, conditions)});
  }
  return devices;
}

// That some of its points were not measured to their end; empty when all were.
std::string Lack(const Measurements& of) {
  if (of.unfinished.empty()) return "";
  return absl::StrCat(of.name, " is incomplete: ", of.unfinished.size(),
                      of.unfinished.size() == 1 ? " point was" : " points were",
                      " not measured to the end; the first is ", of.unfinished[0]);
}

// Whatever makes times differ though the programs do not, and what is missing.
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

}  // namespace warpcall::cli
