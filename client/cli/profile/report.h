// What `warpcall profile` found, for people and for programs.
//
// JSON, of one implementation: kernel, implementation, device, iterations, iterations_asked,
// counters_unavailable (why the counters' fields are null; empty when they are not), rows:
// everything that ProfileResponse says, in its order; figures: those of Figures, of one run;
// verdict: bound, reason, advice, a list of sentences; plan_missing: why figures lack what Describe
// tells. What is not known is null. Of two: kernel; profiles, one such object for each; comparison:
// time_ratio, ratios by the name of what is compared, all of the second over the first, and
// reasons, a list of sentences.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "client/cli/profile/figures.h"

namespace warpcall::cli {

// `profiled` has one or two, of one kernel. Of one: what bounds it, its figures, the ten rows that
// took the device longest, their launches, the host's phases, threads and counters, and why
// counters are missing. Of two: what bounds each, why they differ, and their figures side by side.
std::string ToText(absl::Span<const Profiled> profiled);
nlohmann::json ToJson(absl::Span<const Profiled> profiled);
// A line for each row, under one of their JSON names, with the kernel's, the implementation's and
// the device's before, and behind it what is one for all rows of an implementation:
// "verdict.bound", "figures.kernel_ns" and so on. What is not known is empty.
std::string ToCsv(absl::Span<const Profiled> profiled);

}  // namespace warpcall::cli
