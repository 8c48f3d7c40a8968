// How long a row will take for a large problem, by how long it takes for a small one.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/registry.h"
#include "server/engine/clock.h"
#include "server/inspect/operand_sets.h"
#include "server/runtime/device.h"

namespace warpcall::inspect {

// Used by the stream's thread; destroyed before the stream.
class Foresight {
 public:
  struct Site {
    const Registry* registry = nullptr;
    const DeviceProperties* device = nullptr;
    Stream* stream = nullptr;
    cpu::ThreadPool* pool = nullptr;
    int64_t deadline_ns = kNoDeadline;
    Clock clock = MonotonicNs;
  };

  // All outlive it. `operands` are the problem's: pieces of it use their first bytes, and write
  // into the outputs.
  Foresight(Site site, const Kernel* kernel, const Problem* problem, const Operands* operands);

  // Nanoseconds of a launch, from larger and larger pieces of the problem until one takes long
  // enough to tell, or from usual problems of the op where it cannot be cut. 0: not known, because
  // the problem is so small that there is no need, or nothing smaller runs. Whatever else the
  // machine does only adds to it: what is predicted to take more than `doubted_ns` is looked at
  // again, as far as that takes no more than a second or so; than `doubted_ns` where most of what a
  // piece reads is an input that all share.
  absl::StatusOr<double> Predict(const Implementation& row, double doubted_ns);

 private:
  struct Piece {
    double wanted_work = 0;
    Problem problem;
    double share = 1;                 // of the work
    bool shares = false;              // most of its bytes are those that all parts share
    std::optional<OperandSets> sets;  // none: it has the whole problem's operands
  };

  // One of so much work, in FLOPs and bytes together, or a little more; null where there is none,
  // or those that are kept would have more bytes than the whole problem.
  absl::StatusOr<const Piece*> Of(double work);
  std::optional<Problem> ProblemOf(double work) const;
  // Nanoseconds of the best launch of some.
  absl::StatusOr<double> Time(const Implementation& row, const Piece& piece) const;

  const Site site_;
  const Kernel& kernel_;
  const Problem& problem_;
  const Operands& operands_;
  const double whole_work_;
  const int64_t parts_;
  double first_work_;
  std::vector<std::unique_ptr<const Piece>> pieces_;
  int64_t pieces_bytes_ = 0;
};

}  // namespace warpcall::inspect
