// A row in a benchmark, from its admission to its result.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "kernels/plan.h"
#include "server/inspect/benchmark.h"
#include "server/inspect/load_meter.h"
#include "server/inspect/row_timer.h"

namespace warpcall::inspect {

// Blocks of samples between which a row may drift.
inline constexpr int kBlocks = 4;

struct Candidate {
  const Row* row = nullptr;
  v1::BenchmarkResult result = {};
  PlanPtr plan;
  std::unique_ptr<RowTimer> timer;
  std::unique_ptr<LoadMeter> load;  // of a settled run
  double expected_ns = 0;           // for a launch; 0: not known
  int64_t disturbed = 0;            // samples during which other work held the machine, and kept on
  bool warm = false;
  bool done = false;
  bool told = false;
};

// Rows that take turns, since their speeds are close to each other.
using Group = std::vector<Candidate*>;

// Groups the rows that are not done by the expected time of a launch, the fastest first.
std::vector<Group> GroupsOf(std::vector<Candidate>& candidates);

void SetNames(const Implementation& row, v1::BenchmarkResult* result);

// Ends the row without times. Its result holds the reason, the row's names and predicted_ns, and
// nothing else.
void Fail(Candidate& candidate, const absl::Status& status);

// Ends the row with its samples; fails it without any. The row is unstable if its drift, or the
// distance of its fastest tenth from its median, is above `spread_max`.
void FinishWithSamples(Candidate& candidate, double spread_max);

}  // namespace warpcall::inspect
