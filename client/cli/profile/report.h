// Reports of `warpcall profile`, for people and for programs.
//
// JSON, for one implementation: kernel (of a graph its file), implementation, device, iterations,
// iterations_asked, counters_unavailable (why the counters' fields are null; empty when they are
// not), rows: all fields of ProfileResponse, in its order; figures: the members of Figures, for one
// run; verdict: bound, reason, advice, a list of sentences; plan_missing: why figures lack the
// values that Describe returns. Unknown values are null. For two: kernel (but of graphs); profiles,
// one such object for each; comparison: time_ratio, ratios by figure name, all of the second over
// the first, and reasons, a list of sentences.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "client/cli/profile/figures.h"

namespace warpcall::cli {

// `profiled` has one or two, of one kernel or of graphs. For one, prints the bound, the figures,
// the ten rows with the longest device time, their launches, the host's phases, threads and
// counters, and why counters are missing. For two, prints each bound, why they differ, and the
// figures side by side.
std::string ToText(absl::Span<const Profiled> profiled);
nlohmann::json ToJson(absl::Span<const Profiled> profiled);
// Writes a line for each row under the rows' JSON names, preceded by kernel, implementation and
// device, and followed by the values common to all rows of an implementation: "verdict.bound",
// "figures.kernel_ns" and so on. Unknown values are empty.
std::string ToCsv(absl::Span<const Profiled> profiled);

}  // namespace warpcall::cli
