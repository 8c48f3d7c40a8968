// The fastest rows of a kernel for one problem on a device, sampled in turn: the best that the
// device gives, as far as this registry knows.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/registry.h"
#include "server/engine/clock.h"
#include "server/inspect/operand_sets.h"
#include "server/inspect/row_timer.h"
#include "server/runtime/device.h"

namespace warpcall::inspect {

// Used by the stream's thread; destroyed before the stream.
class FastestRows {
 public:
  struct Site {
    const Registry* registry = nullptr;
    const DeviceProperties* device = nullptr;
    Stream* stream = nullptr;
    cpu::ThreadPool* pool = nullptr;
    Clock clock = MonotonicNs;
  };

  // A kernel and its problem.
  struct Asked {
    const char* kernel;
    std::vector<TensorSpec> inputs;
    std::vector<NamedAttribute> attributes = {};
  };

  // Finds the rows that are for the device, serious (neither manual nor reference) and not much
  // slower than the fastest of them in a launch each. They use `sets` sets of operands. NOT_FOUND
  // without a kernel of this name, or without such a row.
  static absl::StatusOr<std::unique_ptr<FastestRows>> Create(const Site& site, const Asked& asked,
                                                             int64_t sets);

  // Takes one more sample of one of the rows.
  absl::Status Sample();
  // Time of a launch of the fastest row, by a fast sample (p10): other work on the machine only
  // adds time. 0 before the first sample.
  double launch_ns() const;
  int64_t samples() const { return samples_; }
  int64_t spent_ns() const;
  const Problem& problem() const { return problem_; }

 private:
  struct Runner {
    PlanPtr plan;
    Buffer workspace;
    std::unique_ptr<RowTimer> timer;
  };

  explicit FastestRows(Problem problem) : problem_(std::move(problem)) {}
  absl::Status AddRows(const Site& site, const Kernel& kernel);
  absl::StatusOr<Runner> Ready(const Site& site, const Implementation& row);

  const Problem problem_;
  std::optional<OperandSets> sets_;
  std::vector<Runner> runners_;
  int64_t samples_ = 0;
};

}  // namespace warpcall::inspect
