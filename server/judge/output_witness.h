// Sees that a kernel does its work while it is timed: every sample's launches find new inputs and
// outputs that nobody has computed, and their outputs are looked at afterwards.
#pragma once

#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "kernels/check/cases.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/plan.h"
#include "server/engine/finding.h"
#include "server/inspect/benchmark.h"

namespace warpcall::judge {

// Used by the benchmark's thread, for one problem.
class OutputWitness final : public inspect::SampleWitness {
 public:
  struct Subject {
    const Op* op = nullptr;
    const Problem* problem = nullptr;
    const Row* row = nullptr;  // others are not looked at
    PlanPtr plan;              // the row's
    bool deterministic = true;
  };
  OutputWitness(Subject subject, uint64_t secret, cpu::ThreadPool* pool);

  absl::Status Before(const Row& row, inspect::OperandSets* sets) override;
  // Compares each output with that of another launch on the same inputs, and one set's, which it
  // chooses then, with the definition.
  absl::Status After(const Row& row, inspect::OperandSets* sets,
                     inspect::RowTimer::SetsUsed used) override;

  // What it saw that a right kernel does not do.
  const std::optional<Finding>& finding() const { return finding_; }
  const std::string& detail() const { return detail_; }

 private:
  std::vector<const void*> InputsAt(size_t shift) const;
  absl::Status LaunchAgain(inspect::OperandSets* sets, int64_t set);
  absl::Status CompareWithAnother(inspect::OperandSets* sets, int64_t set);
  absl::Status CompareWithTruth(int64_t set, const std::vector<char>& output);
  absl::Status Found(Finding finding, std::string detail);

  const Subject subject_;
  const OpCases cases_;
  std::mt19937_64 random_;
  cpu::ThreadPool* const pool_;
  std::vector<std::vector<char>> pools_;  // random values by input, more than the input has
  std::vector<size_t> shifts_;            // by set: where in its pool each input begins
  std::vector<char> output_;
  std::vector<char> another_;
  std::optional<Finding> finding_;
  std::string detail_;
};

}  // namespace warpcall::judge
