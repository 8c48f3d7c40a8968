#include "server/inspect/candidate.h"

#include <algorithm>
#include <string>

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

void SetNames(const Implementation& row, v1::BenchmarkResult* result) {
  result->set_implementation(FamilyName(row.family));
  result->set_family(FamilyName(row.family));
  result->mutable_launch()->set_variant(row.name);
}

void Fail(Candidate& candidate, const absl::Status& status) {
  candidate.timer.reset();
  const double predicted_ns = candidate.result.predicted_ns();
  v1::BenchmarkResult& result = candidate.result;
  result.Clear();
  SetNames(candidate.row->implementation, &result);
  result.set_predicted_ns(predicted_ns);
  // Never empty: an empty error means that the row ran.
  result.set_error(status.message().empty() ? status.ToString() : std::string(status.message()));
  candidate.done = true;
}

void FinishWithSamples(Candidate& candidate, double spread_max) {
  if (candidate.timer == nullptr || candidate.timer->samples_ns().empty())
    return Fail(candidate, absl::DeadlineExceededError(
                               "not reached before the call's deadline: allow it more time, or "
                               "name fewer implementations"));
  const std::vector<double>& samples_ns = candidate.timer->samples_ns();
  const Summary summary = Summarize(samples_ns);
  v1::BenchmarkResult& result = candidate.result;
  result.set_iterations(static_cast<int64_t>(samples_ns.size()));
  result.set_launches_per_iteration(candidate.timer->launches_per_sample());
  result.set_mean_ns(summary.mean);
  result.set_median_ns(summary.median);
  result.set_min_ns(summary.min);
  result.set_p10_ns(summary.p10);
  result.set_p90_ns(summary.p90);
  result.set_median_low_ns(summary.median_low);
  result.set_median_high_ns(summary.median_high);
  result.set_noise(summary.noise);
  if (candidate.load != nullptr) candidate.load->WriteTo(&result);
  const auto samples = static_cast<double>(samples_ns.size());
  result.set_unstable(summary.noise > kNoiseMax || samples_ns.size() < 2 ||
                      static_cast<double>(candidate.disturbed) > kOtherWorkShareMax * samples ||
                      summary.median > (1 + spread_max) * summary.p10 ||
                      Drift(samples_ns, kBlocks) > spread_max);
  candidate.done = true;
}

}  // namespace warpcall::inspect
