// A row on its way to its result in a benchmark.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "kernels/plan.h"
#include "server/inspect/benchmark.h"
#include "server/inspect/row_timer.h"

namespace warpcall::inspect {

// Blocks of samples between which a row may drift.
inline constexpr int kBlocks = 4;

struct Candidate {
  const Row* row = nullptr;
  v1::BenchmarkResult result = {};
  PlanPtr plan;
  std::unique_ptr<RowTimer> timer;
  double expected_ns = 0;  // of a launch; 0: not known
  int64_t disturbed = 0;   // of its samples: something else had the machine, and did not let go
  bool warm = false;
  bool done = false;
  bool told = false;
};

// Rows that are measured in turn, since their speeds are close to each other.
using Group = std::vector<Candidate*>;

// Those that are not done, by what a launch is expected to take, the fastest first.
std::vector<Group> GroupsOf(std::vector<Candidate>& candidates);

void SetNames(const Implementation& row, v1::BenchmarkResult* result);

// It is done, without times: its result says why, and keeps nothing else but the row's names and
// predicted_ns.
void Fail(Candidate& candidate, const absl::Status& status);

// It is done, with the samples that it has, or fails where it has none. A row is unstable that
// drifts by more than `spread_max`, or whose fastest tenth is so much faster than its median.
void FinishWithSamples(Candidate& candidate, double spread_max);

}  // namespace warpcall::inspect
