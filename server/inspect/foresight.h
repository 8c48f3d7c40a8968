// Predicts a row's time for a large problem from its times for small ones.
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

  // All arguments outlive it. `operands` are the problem's: pieces of the problem use their first
  // bytes, and write into the outputs.
  Foresight(Site site, const Kernel* kernel, const Problem* problem, const Operands* operands);

  // Predicts the nanoseconds of a launch. Times larger and larger pieces of the problem until one
  // takes long enough, or usual problems of the op if the problem cannot be cut. 0: not known,
  // because the problem is small enough to skip this, or nothing smaller runs. Other work on the
  // machine only adds time, so a prediction above `doubted_ns` is measured again if that takes no
  // more than a second or so, or no more than `doubted_ns` if most of a piece's input bytes are
  // shared.
  absl::StatusOr<double> Predict(const Implementation& row, double doubted_ns);

 private:
  struct Piece {
    double wanted_work = 0;
    Problem problem;
    double share = 1;                 // share of the problem's work
    bool shares = false;              // most of its bytes are shared by all parts
    std::optional<OperandSets> sets;  // none: it uses the whole problem's operands
  };

  // Returns a piece of `work`, in FLOPs and bytes together, or a little more. Null if there is
  // none, or if all pieces together would have more bytes than the whole problem.
  absl::StatusOr<const Piece*> Of(double work);
  std::optional<Problem> ProblemOf(double work) const;
  // Nanoseconds of the best of several launches.
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
