// Sees that a kernel does its work while it is timed: every sample's launches find new inputs and
// outputs that nobody has computed, and their outputs are looked at afterwards.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/check/cases.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/plan.h"
#include "server/engine/finding.h"
#include "server/inspect/benchmark.h"
#include "server/judge/launch_watch.h"
#include "server/runtime/device.h"

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
  struct Site {
    Device* device = nullptr;
    cpu::ThreadPool* pool = nullptr;
    LaunchWatch* watch = nullptr;  // does not count what the witness does; null: nobody watches
  };
  static absl::StatusOr<std::unique_ptr<OutputWitness>> Create(const Site& site, Subject subject,
                                                               uint64_t secret);

  absl::Status Before(const Row& row, inspect::OperandSets* sets) override;
  // Compares each output with that of another launch on the same inputs, and one set's, which it
  // chooses then, with the definition.
  absl::Status After(const Row& row, inspect::OperandSets* sets,
                     inspect::RowTimer::SetsUsed used) override;

  // What it saw that a right kernel does not do.
  const std::optional<Finding>& finding() const { return finding_; }
  const std::string& detail() const { return detail_; }

 private:
  OutputWitness(const Site& site, Subject subject, uint64_t secret);

  // Input i at a place in its pool, in the memory where the pools begin.
  std::vector<const void*> InputsAt(absl::Span<const char* const> pools, size_t shift) const;
  // Copies the pools to the device that has the sets, unless they are there.
  absl::Status Place(inspect::OperandSets* sets);
  absl::Status Look(inspect::OperandSets* sets, inspect::RowTimer::SetsUsed used);
  // Keeps the outputs of these sets, runs them again, and compares.
  absl::Status CompareWithOthers(inspect::OperandSets* sets, absl::Span<const int64_t> group);
  absl::Status LaunchAgain(inspect::OperandSets* sets, absl::Span<const int64_t> group);
  // The i-th kept output differs from that of `set`.
  absl::Status JudgeDifference(inspect::OperandSets* sets, int64_t set, size_t i);
  absl::Status CompareWithTruth(int64_t set, const void* output);
  absl::Status Found(Finding finding, std::string detail);

  const Site site_;
  const Subject subject_;
  const OpCases cases_;
  std::mt19937_64 random_;
  std::vector<std::vector<char>> pools_;          // random values by input, more than the input has
  std::vector<const char*> host_pools_;           // their begins
  std::vector<size_t> shifts_;                    // by set: where in its pool each input begins
  const inspect::OperandSets* placed_ = nullptr;  // has the next four
  std::vector<const char*> device_pools_;
  const char* remains_ = nullptr;
  const char* other_remains_ = nullptr;
  std::vector<char*> kept_outputs_;
  Buffer output_;
  Buffer differs_;  // a flag for each kept output
  std::optional<Finding> finding_;
  std::string detail_;
};

}  // namespace warpcall::judge
