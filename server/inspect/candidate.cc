#include "server/inspect/candidate.h"

#include <algorithm>
#include <utility>

#include "server/inspect/summary.h"
#include "server/inspect/surroundings.h"

namespace warpcall::inspect {
namespace {

// Rows whose speeds are this close to each other are measured in turn.
constexpr double kGroupSpan = 4;

}  // namespace

std::vector<Group> GroupsOf(std::vector<Candidate>& candidates) {
  Group rows;
  for (Candidate& candidate : candidates)
    if (!candidate.done) rows.push_back(&candidate);
  std::stable_sort(rows.begin(), rows.end(), [](const Candidate* a, const Candidate* b) {
    return a->expected_ns < b->expected_ns;
  });
  std::vector<Group> groups;
  for (Candidate* row : rows) {
    if (groups.empty() || row->expected_ns > kGroupSpan * groups.back().front()->expected_ns)
      groups.emplace_back();
    groups.back().push_back(row);
  }
  return groups;
}

void Fail(Candidate& candidate, absl::Status status) {
  candidate.timer.reset();
  candidate.result = {.row = candidate.result.row,
                      .status = std::move(status),
                      .predicted_ns = candidate.result.predicted_ns,
                      .verdict = {},
                      .shape = {}};
  candidate.done = true;
}

void FinishWithSamples(Candidate& candidate, double spread_max) {
  if (candidate.timer == nullptr || candidate.timer->samples_ns().empty())
    return Fail(candidate, absl::DeadlineExceededError(
                               "not reached before the call's deadline: allow it more time, or "
                               "name fewer implementations"));
  BenchmarkResult& result = candidate.result;
  const std::vector<double>& samples_ns = candidate.timer->samples_ns();
  const Summary summary = Summarize(samples_ns);
  result.iterations = static_cast<int64_t>(samples_ns.size());
  result.launches_per_iteration = candidate.timer->launches_per_sample();
  result.mean_ns = summary.mean;
  result.median_ns = summary.median;
  result.min_ns = summary.min;
  result.p10_ns = summary.p10;
  result.p90_ns = summary.p90;
  result.median_low_ns = summary.median_low;
  result.median_high_ns = summary.median_high;
  result.noise = summary.noise;
  const auto samples = static_cast<double>(result.iterations);
  result.unstable = summary.noise > kNoiseMax || result.iterations < 2 ||
                    static_cast<double>(candidate.disturbed) > kOtherWorkShareMax * samples ||
                    summary.median > (1 + spread_max) * summary.p10 ||
                    Drift(samples_ns, kBlocks) > spread_max;
  candidate.done = true;
}

}  // namespace warpcall::inspect
